"""List and find open and finished runs for operators, latest due first."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from scheduler.domain.instants import rfc3339
from scheduler.domain.runs.run import Origin, Run, TriggerCaller
from scheduler.postgres.connection import Connection, Cursor, translated
from scheduler.postgres.list_rows import ListRow
from scheduler.postgres.runs.columns import SELECTED, SELECTED_OF_HISTORY, read
from scheduler.resources import query

_BOTH = {"selected": SELECTED, "selected_of_history": SELECTED_OF_HISTORY}
WANTED = query("runs/run_filters")
PAGE = query("runs/page", wanted=WANTED, **_BOTH)
_PAGE_IDS = query("runs/page_ids", wanted=WANTED)
_FIND = query("runs/find", **_BOTH)
_COUNT = query("runs/count", wanted=WANTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Filter for runs; due from `since` on and before `until`."""

    status: str | None = None
    job_id: str | None = None
    job_type: str | None = None
    tenant: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    worker: str | None = None  # of the newest attempt


def list_runs(
    connection: Connection, wanted: RunFilter, limit: int, after: tuple[datetime, str] | None = None
) -> list[Run]:
    """Return up to `limit` runs after the position `after`, latest due first."""
    before, before_id = after or (None, None)
    values = asdict(wanted) | {"limit": limit, "before": before, "before_id": before_id}
    with translated(), connection.cursor() as cursor:
        cursor.execute(PAGE, values)
        runs = [read(row) for row in cursor]
        add_trigger_callers(cursor, runs)
        return runs


def add_trigger_callers(cursor: Cursor, runs: Iterable[Run]) -> None:
    """Set `triggered_by` of triggered runs."""
    def ask(statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        cursor.execute(statement, values)
        return cursor.fetchall()

    set_trigger_callers(ask, runs)


def set_trigger_callers(
    ask: Callable[[str, dict[str, Any]], list[tuple[Any, ...]]], runs: Iterable[Run]
) -> None:
    """Set `triggered_by` of triggered runs, from the audit; release 0.2 did not record it."""
    triggered: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.occurrence is not None and run.occurrence.origin is Origin.TRIGGER:
            key = run.occurrence.job_id, rfc3339(run.occurrence.due_at)
            triggered.setdefault(key, []).append(run)
    if not triggered:
        return
    jobs, due = map(list, zip(*triggered, strict=True))
    for thing, due_at, via, who in ask(query("audit/trigger_callers"), {"jobs": jobs, "due": due}):
        for run in triggered.get((thing, due_at), ()):
            run.triggered_by = TriggerCaller(via, who)


def page_of_run_ids(
    connection: Connection, wanted: RunFilter, limit: int, after: tuple[datetime, str] | None = None
) -> list[ListRow]:
    """Return id, position, tenant and status of the runs of a page."""
    before, before_id = after or (None, None)
    with translated(), connection.cursor() as cursor:
        cursor.execute(_PAGE_IDS, asdict(wanted) | {"limit": limit, "before": before, "before_id": before_id})
        return [ListRow(*row) for row in cursor]


def count_finished(connection: Connection, wanted: RunFilter, most: int) -> int:
    """Count the finished runs that match, up to `most`."""
    values = asdict(wanted) | {"most": most, "before": None, "before_id": None}
    with translated(), connection.cursor() as cursor:
        cursor.execute(_COUNT, values)
        [(count,)] = cursor.fetchall()
        return int(count)


def find_run(connection: Connection, event_id: str) -> Run | None:
    """Return the run of an event, or None."""
    with translated(), connection.cursor() as cursor:
        return find_with(cursor, event_id)


def find_with(cursor: Cursor, event_id: str) -> Run | None:
    """Return the run of an event, in an open transaction."""
    cursor.execute(_FIND, {"event_id": event_id})
    row = cursor.fetchone()
    if row is None:
        return None
    run = read(row)
    add_trigger_callers(cursor, [run])
    return run


def names_of_runs(connection: Connection, event_ids: Iterable[str]) -> dict[str, str]:
    """Return the names of the jobs of runs, by event id; unnamed jobs are omitted."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("runs/job_names"), {"ids": list(event_ids)})
        return dict(cursor.fetchall())


def statuses_of_runs(connection: Connection, event_ids: Iterable[str]) -> dict[str, str]:
    """Return the statuses of runs by event id."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("runs/statuses"), {"ids": list(event_ids)})
        return dict(cursor.fetchall())
