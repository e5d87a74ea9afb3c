"""Lock and save the runs of results, cancels and retries."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from psycopg2 import errors

from scheduler.domain.runs.run import Run
from scheduler.postgres.claims import array
from scheduler.postgres.connection import Contended, Cursor
from scheduler.postgres.large_values import FEW
from scheduler.postgres.locks import RowKeys
from scheduler.postgres.row_text import json_record
from scheduler.postgres.runs.columns import (
    AS_JSON,
    CHANGING,
    COLUMNS,
    LARGE_VALUES,
    MARKED_FOR_RESULT,
    MARKED_OF_HISTORY,
    SELECTED,
    SELECTED_FOR_RESULT,
    SELECTED_MARKED,
    SELECTED_OF_HISTORY,
    STORED,
    column_type,
    read,
    typed,
    write,
    write_changes,
    write_changing,
)
from scheduler.resources import query

KIND = "runs"
_NOT_SHARED = ("uuid", "text", "json")  # the key, and text from workers
# For a few runs, which are read complete, and for many.
_LOCK = query("runs/lock", selected=SELECTED), query("runs/lock", selected=SELECTED_MARKED)
_LOCK_FOR_RESULT = query("runs/lock", selected=SELECTED_FOR_RESULT), query("runs/lock", selected=MARKED_FOR_RESULT)
_LOCK_OF_JOBS = (query("runs/lock_of_jobs", selected=SELECTED),) * 2
_LOCK_FINISHED = (query("runs/lock_finished", selected=SELECTED_OF_HISTORY),
                  query("runs/lock_finished", selected=MARKED_OF_HISTORY))
INSERT = query("runs/insert", columns=", ".join(STORED))


@lru_cache(maxsize=256)  # results, deadlines and retries change a few sets of columns
def update(names: tuple[str, ...], shared: tuple[str, ...] = (), table: str = "runs") -> str:
    """Return the statement that stores the columns `names`, and `shared`, whose value is the same in all runs."""
    values = [f"saved.{name}" for name in names] + [f"%({name})s::{column_type(name)}" for name in shared]
    return query("runs/update", columns=", ".join((*names, *shared)), saved=", ".join(values), typed=typed(names),
                 table=table)


UPDATE, REPLACE = update(CHANGING), update(STORED)
# Columns that a result changes in a run that has ended, if the end stays the same.
_ATTEMPT_COLUMNS = (
    "event_id", "counted", "decided_by", "attempts", "attempts_omitted", "started_at", "worker", "error",
    "output", "output_cut",
)
_UPDATE_FINISHED = update(_ATTEMPT_COLUMNS, table="run_history")


def lock(cursor: Cursor, ids: Iterable[str]) -> dict[str, Run]:
    """Return the open runs of these events, locked until the transaction ends; may raise RowsTooLarge."""
    return _locked(cursor, _LOCK, ids)


def lock_for_result(cursor: Cursor, ids: Iterable[str]) -> dict[str, Run]:
    """Return the same without the columns that no result depends on, because each value takes time to fetch."""
    return _locked(cursor, _LOCK_FOR_RESULT, ids)


def lock_runs_of_jobs(cursor: Cursor, job_ids: Iterable[str]) -> dict[str, Run]:
    """Return the open runs of these jobs, locked."""
    return _locked(cursor, _LOCK_OF_JOBS, job_ids)


def lock_finished(cursor: Cursor, ids: Iterable[str]) -> dict[str, Run]:
    """Return the finished runs of these events, locked; saving a changed one reopens it."""
    return _locked(cursor, _LOCK_FINISHED, ids)


def row_keys(ids: Collection[str]) -> list[RowKeys]:
    """Return the rows of the runs with these event ids."""
    return [RowKeys(table, ids, key="event_id", row="event_id") for table in ("runs", "run_history")]


def save(cursor: Cursor, opened: Mapping[str, Run], finished: Mapping[str, Run], after: Mapping[str, Run]) -> None:
    """Save the runs that differ from the locked ones.

    A finished run moves back to the open ones, unless its end is unchanged: that was published.
    """
    changed = [run for event_id, run in after.items() if event_id in opened and run is not opened[event_id]]
    again = [run for event_id, run in after.items() if event_id in finished and run is not finished[event_id]]
    rewritten = [run for run in again if _same_end(finished[run.event_id], run)]
    moved = [run for run in again if not _same_end(finished[run.event_id], run)]
    added = [run for event_id, run in after.items() if event_id not in opened and event_id not in finished]
    if changed:
        _change(cursor, [opened[run.event_id] for run in changed], changed)
    if rewritten:
        cursor.execute(_UPDATE_FINISHED, {"runs": records(rewritten, STORED)})
    if moved:
        cursor.execute(query("runs/unarchive"), {"ids": array(run.event_id for run in moved)})
    if added or moved:
        try:
            cursor.execute(INSERT, {"runs": records([*added, *moved], STORED)})
        except errors.UniqueViolation as error:
            raise Contended("Postgres: another process has just inserted one of these runs") from error
    if added:
        # From here on no other session can open them. But one may have opened and finished since the lookup.
        cursor.execute(query("runs/exists_finished"), {"ids": array(run.event_id for run in added)})
        if cursor.fetchall() == [(True,)]:
            raise Contended("Postgres: another process has just finished one of these runs")


def _same_end(before: Run, after: Run) -> bool:
    """Return whether the end of a finished run is unchanged."""
    return after.status is before.status and after.finished_at == before.finished_at


def _change(cursor: Cursor, before: Sequence[Run], after: Sequence[Run]) -> None:
    """Save the columns that differ; a value that all runs share, such as the time of the batch, is sent once.

    Text from workers is always sent as JSON: Postgres rejects JSON that the database's encoding cannot represent,
    and stored values must be storable again.
    """
    columns = write_changes(before, after)
    shared = {
        name: texts[0] for name, texts in columns.items()
        if texts.count(texts[0]) == len(texts) and (texts[0] is None or column_type(name) not in _NOT_SHARED)
    }
    own = tuple(name for name in columns if name not in shared)
    rows = zip(*(columns[name] for name in own), strict=True)
    saved = f"[{','.join([json_record(own, row, AS_JSON) for row in rows])}]"
    cursor.execute(update(own, tuple(shared)), {"runs": saved, **shared})


def records(runs: Sequence[Run], columns: tuple[str, ...]) -> str:
    """Write runs as a JSON array of rows."""
    row = write_changing if columns is CHANGING else write
    return f"[{','.join(json_record(columns, row(run), AS_JSON) for run in runs)}]"


def _locked(cursor: Cursor, statements: tuple[str, str], ids: Iterable[str]) -> dict[str, Run]:
    ids = list(ids)
    for_few, for_many = statements
    many = len(ids) > FEW and for_many is not for_few
    cursor.execute(for_many if many else for_few, {"ids": array(ids)})
    rows = cursor.fetchall()
    return {run.event_id: run for run in map(read, LARGE_VALUES.check(rows) if many else rows)}


assert STORED[:-1] == COLUMNS  # noqa: S101 - wake_at is computed and comes last
