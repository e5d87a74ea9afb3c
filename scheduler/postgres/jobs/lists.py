"""Jobs for people: one by its id, and pages of them, newest first."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduler.domain.jobs.job import Job
from scheduler.postgres.connection import Connection, translated
from scheduler.postgres.jobs.columns import COLUMNS, SELECTED, read
from scheduler.postgres.jobs.store import Cursor
from scheduler.postgres.lists import Listed
from scheduler.resources import query

_PARTS = {"selected": SELECTED, "beside": query("jobs/beside")}
WANTED = query("jobs/wanted")
_NEWEST = query("jobs/newest", wanted=WANTED)
_PAGE = query("jobs/page", newest=_NEWEST, **_PARTS)
_PAGE_IDS = query("jobs/page_ids", newest=_NEWEST)
_FIND = query("jobs/find", **_PARTS)
_PAGE_NEXT = query("jobs/page_next", wanted=WANTED, **_PARTS)
_COUNT = query("jobs/count", wanted=WANTED)
_LAST_RUN_STATUSES = query("jobs/last_run_statuses")
_SPECIAL = re.compile(r"([\\%_])")
_UUID = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"


@dataclass(slots=True)
class Beside:
    """What the database knows of a job beside what the domain knows."""

    created_at: datetime
    updated_at: datetime
    created_by: str | None
    updated_by: str | None
    last_due_at: datetime | None
    last_emitted_at: datetime | None
    last_problem: str | None
    last_run_status: str | None = None  # of a tracked one


@dataclass(slots=True)
class JobRow:
    """A job as people see it."""

    job: Job
    beside: Beside

    @property
    def position(self) -> tuple[datetime, str]:
        """Where it stands in the list."""
        return self.beside.created_at, self.job.id


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are asked for; `q` is how an id, a name or a type begins."""

    status: str | None = None
    job_type: str | None = None
    tenant: str | None = None
    priority: str | None = None
    q: str | None = None

    def values(self) -> dict[str, Any]:
        """Return the values of jobs/wanted.sql, without the place in the list."""
        lowest, highest = _ids(self.q or "")
        like = None if self.q is None else _SPECIAL.sub(r"\\\1", self.q) + "%"
        return asdict(self) | {"q": like, "lowest": lowest, "highest": highest}


def list_jobs(
    connection: Connection, wanted: JobFilter, limit: int, after: tuple[datetime, str] | None = None
) -> list[JobRow]:
    """Return at most so many jobs, newest first, from where the last page ended."""
    before, before_id = after or (None, None)
    values = wanted.values() | {"limit": limit, "before": before, "before_id": before_id}
    with translated(), connection.cursor() as cursor:
        cursor.execute(_PAGE, values)
        return _rows(cursor)


def page_of_job_ids(
    connection: Connection, wanted: JobFilter, limit: int, after: tuple[datetime, str] | None = None
) -> list[Listed]:
    """Return which jobs are on a page, without all that is known of them."""
    before, before_id = after or (None, None)
    values = wanted.values() | {"limit": limit, "before": before, "before_id": before_id}
    with translated(), connection.cursor() as cursor:
        cursor.execute(_PAGE_IDS, values)
        return [Listed(*row) for row in cursor]


def list_next_jobs(
    connection: Connection, wanted: JobFilter, limit: int, after: tuple[datetime, str] | None = None
) -> list[JobRow]:
    """Return at most so many of the pending jobs, those due next first, from where the last page ended."""
    due_after, due_after_id = after or ("-infinity", str(UUID(int=0)))
    place = {"before": None, "before_id": None, "due_after": due_after, "due_after_id": due_after_id}
    with translated(), connection.cursor() as cursor:
        cursor.execute(_PAGE_NEXT, wanted.values() | place | {"limit": limit})
        return _rows(cursor)


def count_jobs(connection: Connection, wanted: JobFilter, most: int) -> int:
    """Count the jobs that match, up to `most`."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(_COUNT, wanted.values() | {"most": most, "before": None, "before_id": None})
        [(found,)] = cursor.fetchall()
        return int(found)


def find_job(connection: Connection, job_id: str) -> JobRow | None:
    """Return one job, None if nobody has asked for it."""
    with translated(), connection.cursor() as cursor:
        return find_with(cursor, job_id)


def find_with(cursor: Cursor, job_id: str) -> JobRow | None:
    """Return one job, in a transaction that is open."""
    cursor.execute(_FIND, {"id": job_id})
    found = _rows(cursor)
    return found[0] if found else None


def _rows(cursor: Cursor) -> list[JobRow]:
    """Return what was asked for, with the last run's status of those that are tracked."""
    found = [_row(row) for row in cursor]
    tracked = {row.job.id: row.beside for row in found if row.job.definition and row.job.definition.run}
    if tracked:
        last_due_ats = [beside.last_due_at for beside in tracked.values()]
        cursor.execute(_LAST_RUN_STATUSES, {"ids": list(tracked), "last_due_ats": last_due_ats})
        for job_id, status in cursor:
            tracked[job_id].last_run_status = status
    return found


def _row(row: tuple[Any, ...]) -> JobRow:
    return JobRow(read(row), Beside(*row[len(COLUMNS) :]))


def _ids(beginning: str) -> tuple[str | None, str | None]:
    """Return the first and the last UUID that begin so; nothing where none does."""
    text = beginning.lower()
    shape = "".join("-" if each == "-" else "x" if each in "0123456789abcdef" else "?" for each in text)
    if not text or len(text) > len(_UUID) or not _UUID.startswith(shape):
        return None, None
    rest = _UUID[len(text) :]
    return text + rest.replace("x", "0"), text + rest.replace("x", "f")


_WATCHED = query("console/watched_jobs", newest=_PAGE_IDS, **_PARTS)


def watched_jobs(connection: Connection, job_ids: Iterable[str], newest: int) -> list[JobRow]:
    """Return these jobs and so many of the newest of all, in no order, in one statement."""
    values = JobFilter().values() | {"before": None, "before_id": None, "ids": list(job_ids), "limit": newest}
    with translated(), connection.cursor() as cursor:
        cursor.execute(_WATCHED, values)
        return [_row(row) for row in cursor]
