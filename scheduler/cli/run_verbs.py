"""`scheduler run list|show|retry|export`: each returns what is wrong, or None."""

import json
from argparse import Namespace

from scheduler.cli.show.run import explain, rows
from scheduler.cli.verb_helpers import cli_caller, open_connection, run_in_batches, wake_horizon
from scheduler.commands import bulk_commands, operator_commands
from scheduler.commands.operator_commands import NoSuchRecord
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import ScheduleRetry
from scheduler.postgres.runs.lists import RunFilter, list_runs
from scheduler.postgres.runs.report import export_runs, find_run
from scheduler.settings import Settings
from scheduler.views.base import in_ascii, list_as_json
from scheduler.views.runs import run_json, run_view

_ALL = "No run is like that."


def list(settings: Settings, args: Namespace) -> None:  # noqa: A001 - the verb's own name
    """Print runs."""
    with open_connection(settings, "run list") as connection:
        runs = list_runs(connection, _wanted(args), args.limit)
    if args.json:
        print(in_ascii(list_as_json(map(run_view, runs))))
    else:
        print("\n".join(rows(runs)) if runs else _ALL)


def show(settings: Settings, args: Namespace) -> str | None:
    """Print one run."""
    known = find_run(settings.database_url, args.event_id)
    if known is None:
        return f"no run has the event_id {args.event_id}"
    print(in_ascii(run_json(known.run)) if args.json else "\n".join(explain(known)))
    return None


def retry(settings: Settings, args: Namespace) -> str | None:
    """Do what the command `retry` does, by the same function."""
    wanted = _wanted(args)
    if (args.event_id is None) == (wanted == RunFilter()):
        return "give an EVENT_ID, or at least one filter"
    with open_connection(settings, "run retry") as connection:
        if args.event_id is None:
            matched = run_in_batches(connection,
                                     bulk_commands.retry_step(wanted, cli_caller(), wake_horizon(settings)))
            words = f"{matched:,} matched: those that were dead or cancelled get new attempts"
            print(json.dumps({"matched": matched}) if args.json else words)
            return None
        incoming = Incoming(ScheduleRetry(event_id=args.event_id), str(args.event_id), caller=cli_caller())
        try:
            run, verdict = operator_commands.retry_run(connection, incoming, None, wake_horizon(settings))
        except NoSuchRecord:
            return f"no run has the event_id {args.event_id}"
        except Rejected as rejected:
            return "; ".join(f"{each.field} {each.problem}" for each in rejected.problems)
    if args.json:
        print(in_ascii(run_json(run)))
    elif verdict.status == "scheduled":
        print(f"scheduled: attempt {run.attempt + 1} goes out at once")
    else:
        print(f"{verdict.status}: it is {run.status}; only what is dead or cancelled gets new attempts")
    return None


def export(settings: Settings, args: Namespace) -> None:
    """Print finished runs as JSON lines."""
    for run in export_runs(settings.database_url, args.since, args.until):
        print(in_ascii(run_json(run)))


def _wanted(args: Namespace) -> RunFilter:
    return RunFilter(
        status=args.status, job_id=None if args.job is None else str(args.job), job_type=args.job_type,
        tenant=args.tenant, since=args.since, until=args.until,
    )
