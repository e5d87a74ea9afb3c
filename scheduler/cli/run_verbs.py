"""`scheduler run list|show|retry|cancel|export`: functions that return an error text, or None."""

import json
from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from scheduler.cli.export_files import write_days
from scheduler.cli.show.run import explain, rows
from scheduler.cli.verb_helpers import cli_caller, open_connection, run_in_batches, wake_horizon
from scheduler.commands import bulk_commands, operator_commands
from scheduler.commands.cancel_run import RunHasEnded, cancel_run
from scheduler.commands.operator_commands import NoSuchRecord
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import ScheduleRetry
from scheduler.domain.runs.run import Run
from scheduler.postgres.runs.lists import RunFilter, list_runs
from scheduler.postgres.runs.report import export_runs, find_run
from scheduler.settings import Settings
from scheduler.views.base import in_ascii, list_as_json
from scheduler.views.runs import run_json, run_view


def list(settings: Settings, args: Namespace) -> None:  # noqa: A001 - the verb's own name
    """Print runs."""
    with open_connection(settings, "run list") as connection:
        runs = list_runs(connection, _filter(args), args.limit)
    if args.json:
        print(in_ascii(list_as_json(map(run_view, runs))))
    else:
        print("\n".join(rows(runs)) if runs else "No matching runs.")


def show(settings: Settings, args: Namespace) -> str | None:
    """Print one run."""
    report = find_run(settings.database_url, args.event_id)
    if report is None:
        return f"no run has the event_id {args.event_id}"
    print(in_ascii(run_json(report.run)) if args.json else "\n".join(explain(report)))
    return None


def retry(settings: Settings, args: Namespace) -> str | None:
    """Retry one run, or all matching runs that are dead or cancelled."""
    filters = _filter(args)
    if (args.event_id is None) == (filters == RunFilter()):
        return "give an EVENT_ID, or at least one filter"
    with open_connection(settings, "run retry") as connection:
        if args.event_id is None:
            matched = run_in_batches(connection,
                                     bulk_commands.retry_step(filters, cli_caller(), wake_horizon(settings)))
            text = f"{matched:,} matched; the dead and cancelled runs are retried"
            print(json.dumps({"matched": matched}) if args.json else text)
            return None
        incoming = Incoming(ScheduleRetry(event_id=args.event_id), str(args.event_id), caller=cli_caller())
        try:
            run, decision = operator_commands.retry_run(connection, incoming, None, wake_horizon(settings))
        except NoSuchRecord:
            return f"no run has the event_id {args.event_id}"
        except Rejected as rejected:
            return "; ".join(f"{problem.field} {problem.problem}" for problem in rejected.problems)
    if args.json:
        print(in_ascii(run_json(run)))
    elif decision.status == "scheduled":
        print(f"scheduled: attempt {run.attempt + 1} is due now")
    else:
        print(f"{decision.status}: the run is {run.status}; only dead and cancelled runs are retried")
    return None


def cancel(settings: Settings, args: Namespace) -> str | None:
    """Cancel one open run."""
    with open_connection(settings, "run cancel") as connection:
        try:
            run = cancel_run(connection, str(args.event_id), None, wake_horizon(settings), cli_caller())
        except NoSuchRecord:
            return f"no run has the event_id {args.event_id}"
        except RunHasEnded as ended:
            return str(ended)
    print(in_ascii(run_json(run)) if args.json else "cancelled: no further attempt is made; `run retry` undoes it")
    return None


def export(settings: Settings, args: Namespace) -> str | None:
    """Print finished runs as JSON lines, or write them to a file per day."""
    if args.directory is not None:
        return _export_files(settings, args)
    if args.gzip:
        return "--gzip needs --directory"
    for run in export_runs(settings.database_url, args.since, args.until):
        print(in_ascii(run_json(run)))
    return None


def _export_files(settings: Settings, args: Namespace) -> str | None:
    def runs(since: datetime, until: datetime) -> Iterator[Run]:
        return export_runs(settings.database_url, since, until)

    now = datetime.now(UTC)
    try:
        for path, count in write_days(Path(args.directory), args.since, args.until, now, runs, compress=args.gzip):
            print(json.dumps({"file": str(path), "runs": count}) if args.json else f"{path}: {count:,} runs",
                  flush=True)
    except OSError as error:
        return f"cannot write to {args.directory}: {error.strerror or error}"
    return None


def _filter(args: Namespace) -> RunFilter:
    return RunFilter(
        status=args.status, job_id=None if args.job is None else str(args.job), job_type=args.job_type,
        tenant=args.tenant, since=args.since, until=args.until,
    )
