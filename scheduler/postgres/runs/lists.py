"""List and find open and finished runs for operators, latest due first."""

from dataclasses import asdict, dataclass
from datetime import datetime

from scheduler.domain.runs.run import Run
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
        return [read(row) for row in cursor]


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
    return None if row is None else read(row)
