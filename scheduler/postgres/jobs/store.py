"""Lock and save the jobs of a batch of commands."""

import io
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType

from psycopg2 import errors

from scheduler.domain.caller import Caller, Via
from scheduler.domain.jobs.job import Job
from scheduler.postgres.client_timeout import TimedConnection
from scheduler.postgres.connection import Connection, Contended, Cursor, roll_back, translated
from scheduler.postgres.jobs.columns import (
    AS_JSON,
    COLUMNS,
    LARGE_VALUES,
    SELECTED,
    SELECTED_MARKED,
    read,
    write,
    write_fresh,
)
from scheduler.postgres.large_values import FEW
from scheduler.postgres.row_text import copy_text, json_record
from scheduler.postgres.zone_files import record_zones
from scheduler.resources import query

_NAMES = ", ".join(COLUMNS)
_MAKER = ("created_by", "created_via")
MANY = 200
_id = attrgetter("id")
_LOCK = query("jobs/lock", selected=SELECTED)
_LOCK_MARKED = query("jobs/lock", selected=SELECTED_MARKED)
_INSERT = query("jobs/insert", columns=", ".join((*COLUMNS, *_MAKER)))
_UPDATE = query("jobs/update", columns=_NAMES, saved=", ".join(f"saved.{name}" for name in COLUMNS))


def lock(cursor: Cursor, ids: Sequence[str], *, requested: bool = False) -> dict[str, Job]:
    """Return the jobs that exist, locked until the transaction ends.

    For a large batch of requests it returns none without a lookup if all jobs of the last batch were new: a lookup
    costs a fifth of the insert. If a job exists after all, saving raises Contended and the retry looks them up. In
    a small batch the lookup costs little, and each wrong guess would log an error in Postgres.
    Raises RowsTooLarge if the rows have too many bytes to be read together.
    """
    session: TimedConnection = cursor.connection  # type: ignore[assignment]  # connect() returns no other type
    new = requested and session.saves_new_jobs and len(ids) >= MANY
    session.saves_new_jobs = False
    if new:
        return {}
    # One literal, because parsing an array of many parameters takes longer than the lookup.
    cursor.execute(_LOCK_MARKED if len(ids) > FEW else _LOCK, {"ids": f"{{{','.join(ids)}}}"})
    rows = cursor.fetchall()
    return {job.id: job for job in map(read, LARGE_VALUES.check(rows) if len(ids) > FEW else rows)}


def save(
    cursor: Cursor, before: Mapping[str, Job], after: Mapping[str, Job],
    callers: Mapping[str, Caller] = MappingProxyType({}),
) -> None:
    """Save the jobs that differ from the locked ones, with their verified callers."""
    updated, fresh, others, requested = [], [], [], []
    for job_id, job in after.items():
        stored = before.get(job_id)
        if stored is not None:
            if stored is not job:
                updated.append(job)
                if stored.definition is None and job.definition is not None:
                    requested.append(job_id)
        elif job.fresh:
            fresh.append(job)
        else:
            others.append(job)
    record_zones(cursor, after.values())
    if requested:
        cursor.execute(query("jobs/update_creation"), {"jobs": _creations(requested, callers)})
    if updated:
        cursor.execute(_UPDATE, {"jobs": _records(updated, ("updated_by",), callers)})
    try:
        if fresh:
            _add(cursor, fresh, callers)
        if others:
            cursor.execute(_INSERT, {"jobs": _records(others, _MAKER, callers)})
    except errors.UniqueViolation as error:
        raise Contended("Postgres: one of these jobs already exists") from error
    session: TimedConnection = cursor.connection  # type: ignore[assignment]  # as above
    session.saves_new_jobs = not before


def check(connection: Connection) -> None:
    """Raise Unavailable if jobs cannot be stored: no table, no permission, or a read-only standby."""
    with translated(), connection.cursor() as cursor:
        try:
            cursor.execute(query("jobs/check_insert"))
        finally:
            roll_back(connection)


def _maker(caller: Caller | None) -> tuple[str | None, str | None]:
    if caller is None:
        return None, None
    return caller.who, None if caller.via is Via.AMQP else caller.via.value


def _add(cursor: Cursor, jobs: list[Job], callers: Mapping[str, Caller]) -> None:
    jobs.sort(key=_id)  # so that two consumers never deadlock
    columns = write_fresh(jobs)
    if callers:
        makers = zip(*(_maker(callers.get(job.id)) for job in jobs), strict=True)
        columns |= dict(zip(_MAKER, makers, strict=True))
    names = tuple(columns)
    if len(jobs) == 1 and callers:  # probably an operator's command: use the faster statement
        cursor.execute(_insert_one(names), [value for (value,) in columns.values()])
    else:
        lines = io.StringIO(copy_text(tuple(columns.values())))
        cursor.copy_expert(_copy(names), lines, size=1 << 20)


@lru_cache(maxsize=256)  # hosts send requests of a few shapes
def _copy(names: tuple[str, ...]) -> str:
    return query("jobs/copy", fresh=", ".join(names))


@lru_cache(maxsize=256)
def _insert_one(names: tuple[str, ...]) -> str:
    return query("jobs/insert_one", fresh=", ".join(names), values=", ".join("%s" for _ in names))


def _creations(ids: Sequence[str], callers: Mapping[str, Caller]) -> str:
    columns = ("id", *_MAKER)
    rows = (json_record(columns, (job_id, *_maker(callers.get(job_id))), frozenset()) for job_id in ids)
    return f"[{','.join(rows)}]"


def _records(jobs: Sequence[Job], by: tuple[str, ...], callers: Mapping[str, Caller]) -> str:
    columns = (*COLUMNS, *by)
    rows = ([*write(job), *_maker(callers.get(job.id))[: len(by)]] for job in jobs)
    return f"[{','.join(json_record(columns, row, AS_JSON) for row in rows)}]"
