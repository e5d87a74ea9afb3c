"""Read one run with all its columns, and export finished runs, for operators."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from scheduler.domain.runs.run import Run
from scheduler.postgres.connection import connect, translated
from scheduler.postgres.maintenance_queries import STALE_SECONDS
from scheduler.postgres.runs.columns import COLUMNS, SELECTED, SELECTED_OF_HISTORY, read
from scheduler.postgres.runs.lists import add_trigger_callers
from scheduler.resources import query

_BOTH = {"selected": SELECTED, "selected_of_history": SELECTED_OF_HISTORY}
_AT_ONCE = 20  # rows in memory during an export: each may have a hundred attempts with outputs of 64 KiB


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run at time `now`."""

    run: Run
    announced: bool  # it has ended and ScheduleFinished was published
    producers: int  # live ones
    now: datetime


def find_run(url: str, event_id: UUID) -> RunReport | None:
    """Return the run of an event, or None. Raises Unavailable if the database cannot be reached."""
    connection = connect(url, "run show", default_transaction_read_only="on")
    try:
        with translated(), connection.cursor() as cursor:
            cursor.execute(query("runs/report", **_BOTH),
                           {"event_id": str(event_id), "stale_after": STALE_SECONDS})
            row = cursor.fetchone()
            if row is None:
                return None
            report = RunReport(read(row), *row[len(COLUMNS) :])
            add_trigger_callers(cursor, [report.run])
            return report
    finally:
        connection.close()


def export_runs(url: str, since: datetime, until: datetime) -> Iterator[Run]:
    """Yield the runs that finished from `since` on and before `until`, oldest first."""
    # The reader may be slow, and sorting a month takes the server a while.
    connection = connect(
        url, "run export", default_transaction_read_only="on", statement_timeout="0",
        idle_in_transaction_session_timeout="0",
    )
    try:
        with translated(), connection.cursor(name="export") as cursor, connection.cursor() as other:
            cursor.execute(query("runs/export", selected_of_history=SELECTED_OF_HISTORY),
                           {"since": since, "until": until})
            while runs := [read(row) for row in cursor.fetchmany(_AT_ONCE)]:
                add_trigger_callers(other, runs)
                yield from runs
    finally:
        connection.close()
