"""`scheduler run list|show|retry|export`: each returns what is wrong, or None."""

import json
from argparse import Namespace
from collections.abc import Callable
from datetime import timedelta

from scheduler.commands.executing import execute
from scheduler.commands.judging import Retried
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import ScheduleRetry
from scheduler.domain.runs.run import RunStatus
from scheduler.ops import logs
from scheduler.postgres.connection import connect
from scheduler.postgres.runs.reads import Filter, export_runs, find_run, list_runs
from scheduler.show_run import as_json, explain, rows


def _list(url: str, args: Namespace) -> None:
    wanted = Filter(
        status=None if args.status is None else RunStatus(args.status),
        job_id=None if args.job is None else str(args.job),
        job_type=args.job_type, since=args.since, until=args.until,
    )
    runs = list_runs(url, wanted, args.limit)
    if args.json:
        print(json.dumps([as_json(run) for run in runs]))
    else:
        print("\n".join(rows(runs)) if runs else "No run is like that.")


def _show(url: str, args: Namespace) -> str | None:
    known = find_run(url, args.event_id)
    if known is None:
        return f"no run has the event_id {args.event_id}"
    print(json.dumps(as_json(known.run, alone=True)) if args.json else "\n".join(explain(known)))
    return None


def _retry(url: str, args: Namespace) -> str | None:
    """Do what the command `retry` does, by the same function."""
    logs.set_up("error", "text", "run retry")
    incoming = Incoming(ScheduleRetry(event_id=args.event_id), str(args.event_id))
    connection = connect(url, "run retry")
    try:
        [verdict] = execute(connection, [incoming], timedelta())
    finally:
        connection.close()
    if isinstance(verdict, Rejected):
        return "; ".join(f"{each.field} {each.problem}" for each in verdict.problems)
    assert isinstance(verdict, Retried)  # noqa: S101 - a retry has no other answer
    if verdict.status == "scheduled":
        print(f"scheduled: attempt {verdict.run.attempt + 1} goes out at once")
    else:
        print(f"{verdict.status}: it is {verdict.run.status}; only what is dead or cancelled gets new attempts")
    return None


def _export(url: str, args: Namespace) -> None:
    for run in export_runs(url, args.since, args.until):
        print(json.dumps(as_json(run, alone=True)))


VERBS: dict[str, Callable[[str, Namespace], str | None]] = {
    "list": _list, "show": _show, "retry": _retry, "export": _export,
}
