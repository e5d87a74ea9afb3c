"""The rows of the jobs that a batch of commands is about: locked before, saved after."""

import io
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import psycopg2.extensions
from psycopg2 import errors

from scheduler.domain.caller import Caller, Via
from scheduler.domain.jobs.job import Job
from scheduler.postgres.columns import Row, copy_line, json_record
from scheduler.postgres.connection import Connection, Contended, roll_back, translated
from scheduler.postgres.jobs.columns import AS_JSON, COLUMNS, FRESH, SELECTED, read, write, write_fresh
from scheduler.resources import query

Cursor = psycopg2.extensions.cursor
_NAMES = ", ".join(COLUMNS)
_MAKER = ("created_by", "created_via")
_LOCK = query("jobs/lock", selected=SELECTED)
_COPY = query("jobs/copy", fresh=", ".join(FRESH))
_COPY_BY = query("jobs/copy", fresh=", ".join((*FRESH, *_MAKER)))
_INSERT_ONE = query("jobs/insert_one", fresh=", ".join((*FRESH, *_MAKER)),
                    values=", ".join("%s" for _ in (*FRESH, *_MAKER)))
_INSERT = query("jobs/insert", columns=", ".join((*COLUMNS, *_MAKER)))
_UPDATE = query("jobs/update", columns=_NAMES, saved=", ".join(f"saved.{name}" for name in COLUMNS))


def lock(cursor: Cursor, ids: Iterable[str]) -> dict[str, Job]:
    """Return the jobs that are there, locked until the transaction ends."""
    # As one literal: an array of so many parts takes longer to read than to look up.
    cursor.execute(_LOCK, {"ids": f"{{{','.join(ids)}}}"})
    return {job.id: job for job in map(read, cursor)}


def save(
    cursor: Cursor, before: Mapping[str, Job], after: Mapping[str, Job],
    callers: Mapping[str, Caller] = MappingProxyType({}),
) -> None:
    """Write the jobs that differ from what was locked, and by whom where that is known."""
    updated, fresh, others = [], [], []
    for job_id, job in after.items():
        known = before.get(job_id)
        if known is not None:
            if known is not job:
                updated.append(job)
        elif job.fresh:
            row = write_fresh(job)
            fresh.append([*row, *_maker(callers.get(job_id))] if callers else row)
        else:
            others.append(job)
    if updated:
        cursor.execute(_UPDATE, {"jobs": _records(updated, ("updated_by",), callers)})
    try:
        if len(fresh) == 1 and callers:
            cursor.execute(_INSERT_ONE, fresh[0])
        elif fresh:
            _copy(cursor, _COPY_BY if callers else _COPY, fresh)
        if others:
            cursor.execute(_INSERT, {"jobs": _records(others, _MAKER, callers)})
    except errors.UniqueViolation as error:
        raise Contended("Postgres: another consumer created one of these jobs meanwhile") from error


def check(connection: Connection) -> None:
    """Raise Unavailable where a job could not be stored: no table, no right to, or a standby that only reads."""
    with translated(), connection.cursor() as cursor:
        try:
            cursor.execute(query("jobs/probe"))
        finally:
            roll_back(connection)


def _maker(caller: Caller | None) -> tuple[str | None, str | None]:
    if caller is None:
        return None, None
    return caller.who, None if caller.via is Via.AMQP else caller.via.value


def _copy(cursor: Cursor, statement: str, rows: list[Row]) -> None:
    rows.sort(key=lambda row: row[0] or "")  # by id, so that two consumers never deadlock
    cursor.copy_expert(statement, io.StringIO("".join(map(copy_line, rows))), size=1 << 20)


def _records(jobs: Sequence[Job], by: tuple[str, ...], callers: Mapping[str, Caller]) -> str:
    columns = (*COLUMNS, *by)
    rows = ([*write(job), *_maker(callers.get(job.id))[: len(by)]] for job in jobs)
    return f"[{','.join(json_record(columns, row, AS_JSON) for row in rows)}]"
