"""`scheduler job list|show|pause|resume|trigger|cancel`: each returns what is wrong, or None."""

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
from scheduler.domain.messages import (
    JobCommand,
    ScheduleCancel,
    SchedulePause,
    ScheduleResume,
    ScheduleTrigger,
)
from scheduler.postgres.jobs.lists import JobFilter, list_jobs
from scheduler.settings import Settings
from scheduler.views.base import as_json, in_ascii, instant, list_as_json
from scheduler.views.jobs import JobView, job_view

_KINDS: dict[str, type[JobCommand]] = {
    "pause": SchedulePause, "resume": ScheduleResume, "trigger": ScheduleTrigger, "cancel": ScheduleCancel,
}
_HEAD = ("ID", "STATUS", "TYPE", "NAME", "NEXT RUN", "EMITTED", "TENANT")


def list(settings: Settings, args: Namespace) -> None:  # noqa: A001 - the verb's own name
    """Print jobs, newest first."""
    with open_connection(settings, "job list") as connection:
        page = list_jobs(connection, _wanted(args), args.limit)
        jobs = [job_view(row) for row in page]
        while page.cut:  # its jobs are large
            page = list_jobs(connection, _wanted(args), args.limit - len(jobs), page[-1].position)
            jobs += map(job_view, page)
    if args.json:
        print(in_ascii(list_as_json(jobs)))
    else:
        print("\n".join(_rows(jobs)) if jobs else "No job is like that.")


def show(settings: Settings, args: Namespace) -> str | None:
    """Print one job, and why its last event was late."""
    found = job.run(settings, args.id, as_json=args.json)
    return None if found else f"no job has the id {args.id}"


def pause(settings: Settings, args: Namespace) -> str | None:
    """Pause one job, or all that match."""
    return _do(settings, args)


def resume(settings: Settings, args: Namespace) -> str | None:
    """Resume one job, or all that match."""
    return _do(settings, args)


def cancel(settings: Settings, args: Namespace) -> str | None:
    """Cancel one job, or all that match."""
    return _do(settings, args)


def trigger(settings: Settings, args: Namespace) -> str | None:
    """Have one job emit an extra occurrence."""
    return _one(settings, args)


def _do(settings: Settings, args: Namespace) -> str | None:
    wanted = _wanted(args)
    if (args.id is None) == (wanted == JobFilter()):
        return "give an ID, or at least one filter"
    if args.verb == "cancel":
        what = f"To cancel {args.id or 'all jobs that match'}"
        if problem := confirm(what, yes=args.yes):
            return problem
    if args.id is not None:
        return _one(settings, args)
    with open_connection(settings, f"job {args.verb}") as connection:
        matched = run_in_batches(connection,
                                 bulk_commands.job_step(args.verb, wanted, cli_caller(), wake_horizon(settings)))
    print(json.dumps({"matched": matched}) if args.json else f"{matched:,} matched")
    return None


def _one(settings: Settings, args: Namespace) -> str | None:
    incoming = Incoming(_KINDS[args.verb](id=args.id), str(args.id), caller=cli_caller())
    try:
        with open_connection(settings, f"job {args.verb}") as connection:
            view = job_view(run_command(connection, JobCommandHooks(incoming, None), wake_horizon(settings)))
    except NoSuchRecord:
        return f"no job has the id {args.id}"
    except JobIsCancelled:
        return f"the job {args.id} is cancelled: a trigger emits nothing until it is requested again"
    except SupersededCommand:
        return "a newer command has overtaken this one"
    except Rejected as rejected:
        return "; ".join(f"{each.field} {each.problem}" for each in rejected.problems)
    following = f", its next run is {instant(view.next_run_at)}" if view.next_run_at else ""
    print(in_ascii(as_json(view)) if args.json else f"{view.status}{following}")
    return None


def _rows(jobs: Sequence[JobView]) -> Sequence[str]:
    return table(_HEAD, [
        (str(each.id), each.status, each.job_type, each.name or "", instant(each.next_run_at) or "",
         str(each.occurrence), each.tenant)
        for each in jobs
    ])


def _wanted(args: Namespace) -> JobFilter:
    return JobFilter(status=args.status, job_type=args.job_type, tenant=args.tenant, priority=args.priority,
                     q=args.q)
