"""List and find jobs for operators, newest first."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduler.domain.jobs.job import Job
from scheduler.domain.messages import DEFAULT_TENANT, Priority
from scheduler.domain.targets.offers import is_unoffered, no_worker
from scheduler.postgres.connection import Connection, Cursor, translated
from scheduler.postgres.jobs.columns import (
    COLUMNS,
    LARGE_VALUES,
    SELECTED,
    SELECTED_MARKED,
    SELECTED_WITHOUT_PAYLOAD,
    read,
)
from scheduler.postgres.large_values import MAX_CLAIM_BYTES, CursorReader
from scheduler.postgres.list_rows import ListRow
from scheduler.postgres.prepared_statements import execute_if_repeated, execute_prepared
from scheduler.postgres.worker_rows import UNSTARTED_SECONDS, list_live_offers
from scheduler.resources import query

_PARTS = {"selected": SELECTED, "beside": query("jobs/list_columns")}
_PAGE_PARTS = _PARTS | {"selected": SELECTED_MARKED}
_NEXT_PARTS = _PARTS | {"selected": SELECTED_WITHOUT_PAYLOAD}
_WANTED = query("jobs/job_filters", also=query("jobs/prefix_filter"))
# By indexed filter column: the first column of the order, and the condition. Not `=`, because the planner then
# drops the column from the order, and may use another index.
_BY = {
    "job_type": ("job_type USING ~>~, ", "job_type = ANY (ARRAY[%(asked)s])"),
    "tenant": ("tenant DESC, ", "tenant = ANY (ARRAY[%(asked)s])"),
    "priority": ("priority DESC, ", "priority = ANY (ARRAY[%(asked)s::priority])"),
}
_USUAL = {"tenant": DEFAULT_TENANT, "priority": Priority.NORMAL}  # values that the indexes omit
_NEWEST = query("jobs/page_newest", wanted=_WANTED, by="")
_WANTED_BY = {name: query("jobs/job_filters", also=also) for name, (_, also) in _BY.items()}
_NEWEST_BY = {name: query("jobs/page_newest", wanted=_WANTED_BY[name], by=by) for name, (by, _) in _BY.items()}
_ANY = query("jobs/page_any", wanted=_WANTED)
_FOUND, _FOUND_ANY = (query(
    "jobs/search_newest", wanted=_WANTED, newest=walked,
    newest_of_type=query("jobs/page_newest", by="job_type USING ~>~, ",
                         wanted=query("jobs/job_filters", also="job_type = ANY (ARRAY[types.job_type])")),
    types_of_jobs=query("jobs/matching_types", table="jobs", listed=query("jobs/indexed_filter"),
                        last="types_of_jobs"),
    types_that_recur=query("jobs/matching_types", table="recurring_jobs", listed="true", last="types_that_recur"),
) for walked in (_NEWEST, _ANY))
_FIND = query("jobs/find", **_PARTS)
_LAST_RUN_STATUSES = query("jobs/last_run_statuses")
# With more matches or types than this, walking the newest jobs finds a page quickly.
_BOUNDS = {"few": 5_000, "most_types": 50}
LATE_SECONDS = 2.0  # a job that is due for less is about to be emitted
LATE_EXAMINED = 10_000  # of the longest late jobs, before filtering
_FEW_NEXT = 1_000  # with more matches than this, walking the next due jobs finds a page quickly
_SPECIAL = re.compile(r"([\\%_])")
_UUID = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"


@dataclass(slots=True)
class JobListColumns:
    """Columns of a job that the domain does not have."""

    created_at: datetime
    updated_at: datetime
    created_by: str | None
    updated_by: str | None
    last_due_at: datetime | None
    last_emitted_at: datetime | None
    last_problem: str | None
    last_run_status: str | None = None  # tracked jobs only


@dataclass(slots=True)
class JobRow:
    """A job with its list columns."""

    job: Job
    beside: JobListColumns

    @property
    def position(self) -> tuple[datetime, str]:
        """Position in the list."""
        return self.beside.created_at, self.job.id

    @property
    def due_position(self) -> tuple[datetime, str]:
        """Position in the list of late jobs."""
        due = [moment for moment in (self.job.next_run_at, self.job.trigger_at) if moment is not None]
        return min(due), self.job.id


class JobPage(list[JobRow]):
    """A page of jobs; `cut` if it has fewer than requested because they are large."""

    cut = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Filter for jobs; `q` is an id, name or type prefix."""

    status: str | None = None
    job_type: str | None = None
    tenant: str | None = None
    priority: str | None = None
    q: str | None = None

    def values(self) -> dict[str, Any]:
        """Return the parameters of jobs/job_filters.sql except the position."""
        lowest, highest = _ids(self.q or "")
        like = None if self.q is None else _SPECIAL.sub(r"\\\1", self.q) + "%"
        values = asdict(self) | {"q": like, "lowest": lowest, "highest": highest} | _BOUNDS
        return values | ({"asked": values[self.by], self.by: None} if self.by else {})

    @property
    def by(self) -> str | None:
        """The indexed filter column, if there is exactly one; among several the planner chooses."""
        columns = [name for name in _BY if getattr(self, name) not in (None, _USUAL.get(name))]
        return columns[0] if len(columns) == 1 and self.q is None else None

    @property
    def newest(self) -> str:
        """The query for the newest matching jobs, by index, regardless of their share of all jobs."""
        if self.by is not None:
            return _NEWEST_BY[self.by]
        return _NEWEST if self.q is None else _FOUND

    @property
    def next(self) -> str:
        """The query for the matching jobs due next."""
        walked = query("jobs/next_due", wanted=_WANTED_BY[self.by] if self.by else _WANTED)
        return query("jobs/next_due_of_few", newest=self.newest, next=walked) if self.few else walked

    @property
    def count(self) -> str:
        """The query for the number of matching jobs."""
        if self.q is not None:
            return query("jobs/count", found=_FOUND_ANY)
        return query("jobs/count", found=self.newest if self.few else _ANY)

    @property
    def few(self) -> bool:
        """Whether a small share of all jobs may match."""
        return (self.job_type, self.tenant, self.priority, self.q) != (None, None, None, None)


def list_jobs(
    connection: Connection, wanted: JobFilter, limit: int, after: tuple[datetime, str] | None = None
) -> JobPage:
    """Return up to `limit` jobs after the position `after`, newest first; fewer if they are large."""
    before, before_id = after or (None, None)
    values = wanted.values() | {"limit": limit, "before": before, "before_id": before_id}
    with translated(), connection.cursor() as cursor:
        execute_if_repeated(cursor, query("jobs/page", newest=wanted.newest, **_PAGE_PARTS), values)
        return _limited(cursor, cursor.fetchall())


def _limited(cursor: Cursor, rows: list[tuple[Any, ...]]) -> JobPage:
    """Return the first jobs that are not too large together."""
    fitting = rows
    size = LARGE_VALUES.inline_size(rows)
    if size is None or size > MAX_CLAIM_BYTES:
        [fitting], _ = LARGE_VALUES.fetch(CursorReader(cursor), [rows])
    page = JobPage(_rows(cursor, fitting))
    page.cut = len(fitting) < len(rows)
    return page


def page_of_job_ids(
    connection: Connection, wanted: JobFilter, limit: int, after: tuple[datetime, str] | None = None
) -> list[ListRow]:
    """Return id, position, tenant and status of the jobs of a page."""
    before, before_id = after or (None, None)
    values = wanted.values() | {"limit": limit, "before": before, "before_id": before_id}
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("jobs/page_ids", newest=wanted.newest), values)
        return [ListRow(*row) for row in cursor]


def rows_of_jobs(connection: Connection, ids: Iterable[str], tenant: str | None) -> list[ListRow]:
    """Return id, position, tenant and status of chosen jobs; None for all tenants."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("jobs/rows_by_id"), {"ids": list(ids), "tenant": tenant})
        return [ListRow(*row) for row in cursor]


def list_next_jobs(
    connection: Connection, wanted: JobFilter, limit: int, after: tuple[datetime, str] | None = None,
    until: datetime | None = None,
) -> list[JobRow]:
    """Return up to `limit` pending jobs without payloads that are due before `until`, next due first."""
    pending = replace(wanted, status="pending")
    if wanted.status not in (None, "pending"):
        return []
    due_after, due_after_id = after or ("-infinity", str(UUID(int=0)))
    values = pending.values() | {"limit": _FEW_NEXT, "shown": limit, "before": None, "before_id": None,
                                 "due_after": due_after, "due_after_id": due_after_id, "due_until": until}
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("jobs/page_next", next=pending.next, **_NEXT_PARTS), values)
        return _rows(cursor, cursor.fetchall())


def list_late_jobs(
    connection: Connection, wanted: JobFilter, limit: int, after: tuple[datetime, str] | None = None
) -> JobPage:
    """Return up to `limit` jobs that are due and not emitted, the longest late first; fewer if they are large."""
    due_after, due_after_id = after or ("-infinity", str(UUID(int=0)))
    values = wanted.values() | {
        "shown": limit, "before": None, "before_id": None, "due_after": due_after, "due_after_id": due_after_id,
        "most": LATE_EXAMINED, "grace": LATE_SECONDS,
    }
    late = query("jobs/late", wanted=_WANTED_BY[wanted.by] if wanted.by else _WANTED)
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("jobs/page_next", next=late, **_PAGE_PARTS), values)
        return _limited(cursor, cursor.fetchall())


def count_jobs(connection: Connection, wanted: JobFilter, most: int) -> int:
    """Count the jobs that match, up to `most`."""
    with translated(), connection.cursor() as cursor:
        values = wanted.values() | {"limit": most, "before": None, "before_id": None}
        cursor.execute(wanted.count, values)
        [(count,)] = cursor.fetchall()
        return int(count)


def find_job(connection: Connection, job_id: str) -> JobRow | None:
    """Return one job, or None if it was never requested."""
    with translated(), connection.cursor() as cursor:
        return find_with(cursor, job_id)


def find_with(cursor: Cursor, job_id: str) -> JobRow | None:
    """Return one job, in an open transaction."""
    execute_prepared(cursor, _FIND, job_id)
    rows = _rows(cursor, cursor.fetchall())
    return rows[0] if rows else None


def _rows(cursor: Cursor, rows: Iterable[tuple[Any, ...]]) -> list[JobRow]:
    """Return the jobs, with the last run's status for tracked ones."""
    jobs = [_row(row) for row in rows]
    tracked = {row.job.id: row.beside for row in jobs if row.job.definition and row.job.definition.run}
    if tracked:
        last_due_ats = [beside.last_due_at for beside in tracked.values()]
        values = {"ids": list(tracked), "last_due_ats": last_due_ats, "unstarted": UNSTARTED_SECONDS}
        cursor.execute(_LAST_RUN_STATUSES, values)
        unstarted = {}
        for job_id, status, work in cursor.fetchall():
            tracked[job_id].last_run_status = status
            if work is not None:
                unstarted[job_id] = work
        if unstarted:
            _add_problems(cursor, tracked, unstarted)
    return jobs


def _add_problems(cursor: Cursor, jobs: Mapping[str, JobListColumns], unstarted: Mapping[str, str]) -> None:
    """Set the problem of jobs whose work waits and that no live worker offers."""
    offered = {offer for worker in list_live_offers(cursor) for offer in worker.offers}
    for job_id, work in unstarted.items():
        if is_unoffered(work, offered) and jobs[job_id].last_problem is None:
            jobs[job_id].last_problem = no_worker(work)


def _row(row: tuple[Any, ...]) -> JobRow:
    return JobRow(read(row), JobListColumns(*row[len(COLUMNS) :]))


def _ids(prefix: str) -> tuple[str | None, str | None]:
    """Return the first and the last UUID with this prefix, or None for both."""
    text = prefix.lower()
    shape = "".join("-" if char == "-" else "x" if char in "0123456789abcdef" else "?" for char in text)
    if not text or len(text) > len(_UUID) or not _UUID.startswith(shape):
        return None, None
    rest = _UUID[len(text) :]
    return text + rest.replace("x", "0"), text + rest.replace("x", "f")


_WATCHED = query("console/watched_jobs", newest=query("jobs/page_ids", newest=_NEWEST), **_PARTS)


def watched_jobs(connection: Connection, job_ids: Iterable[str], newest: int) -> list[JobRow]:
    """Return these jobs and the `newest` newest jobs, unordered, in one statement."""
    values = JobFilter().values() | {"before": None, "before_id": None, "ids": list(job_ids), "limit": newest}
    with translated(), connection.cursor() as cursor:
        cursor.execute(_WATCHED, values)
        return [_row(row) for row in cursor]
