"""`scheduler job list`, `show` and the verbs of commands: functions that return an error text, or None."""

import json
from argparse import Namespace
from collections.abc import Sequence

from scheduler.cli.show import job
from scheduler.cli.verb_helpers import cli_caller, confirm, open_connection, run_in_batches, table, wake_horizon
from scheduler.commands import bulk_commands
from scheduler.commands.operator_commands import (
    JobCommandHooks,
    JobIsCancelled,
    NoSuchRecord,
    SupersededCommand,
    run_command,
)
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import JOB_VERBS
from scheduler.postgres.jobs.lists import JobFilter, count_jobs, find_job, list_jobs
from scheduler.settings import Settings
from scheduler.views.base import as_json, in_ascii, instant, list_as_json
from scheduler.views.jobs import JobView, job_view

_MAX_COUNTED = 1_000_000_000  # all
_HEAD = ("ID", "STATUS", "TYPE", "NAME", "NEXT RUN", "EMITTED", "TENANT")


def list(settings: Settings, args: Namespace) -> None:  # noqa: A001 - the verb's own name
    """Print jobs, newest first."""
    with open_connection(settings, "job list") as connection:
        page = list_jobs(connection, _filter(args), args.limit)
        jobs = [job_view(row) for row in page]
        while page.cut:  # large jobs make short pages
            page = list_jobs(connection, _filter(args), args.limit - len(jobs), page[-1].position)
            jobs += map(job_view, page)
    if args.json:
        print(in_ascii(list_as_json(jobs)))
    else:
        print("\n".join(_rows(jobs)) if jobs else "No matching jobs.")


def show(settings: Settings, args: Namespace) -> str | None:
    """Print one job, and why its last event was late."""
    exists = job.run(settings, args.id, as_json=args.json)
    return None if exists else f"no job has the id {args.id}"


def apply(settings: Settings, args: Namespace) -> str | None:
    """Apply a verb to one job, or to all matching jobs."""
    if not JOB_VERBS[args.verb].changes:
        return _one(settings, args)
    filters = _filter(args)
    if (args.id is None) == (filters == JobFilter()):
        return "give an ID, or at least one filter"
    if args.id is not None:
        return _confirm_one(settings, args) or _one(settings, args)
    with open_connection(settings, f"job {args.verb}") as connection:
        if JOB_VERBS[args.verb].permanent and not args.yes:
            count = count_jobs(connection, filters, _MAX_COUNTED)
            connection.rollback()  # the operator may take long to answer
            matching = f"{count:,} job matches" if count == 1 else f"{count:,} jobs match"
            if count and (problem := confirm(f"{args.verb} them", yes=False, matched=matching)):
                return problem
        matched = run_in_batches(connection,
                                 bulk_commands.job_step(args.verb, filters, cli_caller(), wake_horizon(settings)))
    print(json.dumps({"matched": matched}) if args.json else f"{matched:,} matched")
    return None


def _confirm_one(settings: Settings, args: Namespace) -> str | None:
    if not JOB_VERBS[args.verb].permanent or args.yes:
        return None
    with open_connection(settings, f"job {args.verb}") as connection:
        if find_job(connection, str(args.id)) is None:
            return f"no job has the id {args.id}"
    return confirm(f"{args.verb} {args.id}", yes=False, matched="1 job matches")


def _one(settings: Settings, args: Namespace) -> str | None:
    incoming = Incoming(JOB_VERBS[args.verb](id=args.id), str(args.id), caller=cli_caller())
    try:
        with open_connection(settings, f"job {args.verb}") as connection:
            view = job_view(run_command(connection, JobCommandHooks(incoming, None), wake_horizon(settings)))
    except NoSuchRecord:
        return f"no job has the id {args.id}"
    except JobIsCancelled:
        return f"the job {args.id} is cancelled; request it again before you trigger it"
    except SupersededCommand:
        return "a newer command has superseded this one"
    except Rejected as rejected:
        return "; ".join(f"{problem.field} {problem.problem}" for problem in rejected.problems)
    next_run = f", its next run is {instant(view.next_run_at)}" if view.next_run_at else ""
    if args.verb == "trigger" and view.status == "paused":
        next_run = ": the extra run starts when the job is resumed"
    print(in_ascii(as_json(view)) if args.json else f"{view.status}{next_run}")
    return None


def _rows(jobs: Sequence[JobView]) -> Sequence[str]:
    return table(_HEAD, [
        (str(view.id), view.status, view.job_type, view.name or "", instant(view.next_run_at) or "",
         str(view.occurrence), view.tenant)
        for view in jobs
    ])


def _filter(args: Namespace) -> JobFilter:
    return JobFilter(status=args.status, job_type=args.job_type, tenant=args.tenant, priority=args.priority,
                     q=args.q)
