"""Jobs for people: one by its id, and pages of them, newest first."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduler.domain.jobs.job import Job
from scheduler.domain.messages import DEFAULT_TENANT, Priority
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
from scheduler.resources import query

_PARTS = {"selected": SELECTED, "beside": query("jobs/list_columns")}
_PAGE_PARTS = _PARTS | {"selected": SELECTED_MARKED}
_NEXT_PARTS = _PARTS | {"selected": SELECTED_WITHOUT_PAYLOAD}
_WANTED = query("jobs/job_filters", also=query("jobs/prefix_filter"))
# By the one column that is asked for and has an index of its own: the beginning of its order, and which rows; not
# by `=`, after which the planner knows that there is nothing to order.
_BY = {
    "job_type": ("job_type USING ~>~, ", "job_type = ANY (ARRAY[%(asked)s])"),
    "tenant": ("tenant DESC, ", "tenant = ANY (ARRAY[%(asked)s])"),
    "priority": ("priority DESC, ", "priority = ANY (ARRAY[%(asked)s::priority])"),
}
_USUAL = {"tenant": DEFAULT_TENANT, "priority": Priority.NORMAL}  # of which there is no index
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
# An id or a name that as many or more have is met soon enough along the newest, and so is one of so many types.
_BOUNDS = {"few": 5_000, "most_types": 50}
_FEW_NEXT = 1_000  # of more than these, those that are due next are met soon enough along all that are
_SPECIAL = re.compile(r"([\\%_])")
_UUID = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"


@dataclass(slots=True)
class JobListColumns:
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
    beside: JobListColumns

    @property
    def position(self) -> tuple[datetime, str]:
        """Where it stands in the list."""
        return self.beside.created_at, self.job.id


class JobPage(list[JobRow]):
    """Some jobs of a list. A page is `cut` if its jobs are so large that it has fewer than were asked for."""

    cut = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are asked for; `q` is how an id, a name or a type begins."""

    status: str | None = None
    job_type: str | None = None
    tenant: str | None = None
    priority: str | None = None
    q: str | None = None

    def values(self) -> dict[str, Any]:
        """Return the values of jobs/job_filters.sql, without the place in the list."""
        lowest, highest = _ids(self.q or "")
        like = None if self.q is None else _SPECIAL.sub(r"\\\1", self.q) + "%"
        values = asdict(self) | {"q": like, "lowest": lowest, "highest": highest} | _BOUNDS
        return values | ({"asked": values[self.by], self.by: None} if self.by else {})

    @property
    def by(self) -> str | None:
        """The one column with an index of its own that is asked for; of several the planner may choose."""
        asked = [name for name in _BY if getattr(self, name) not in (None, _USUAL.get(name))]
        return asked[0] if len(asked) == 1 and self.q is None else None

    @property
    def newest(self) -> str:
        """The query for the newest of them: by where an index leads to, whatever of all jobs they are."""
        if self.by is not None:
            return _NEWEST_BY[self.by]
        return _NEWEST if self.q is None else _FOUND

    @property
    def next(self) -> str:
        """The query for those of them that are due next."""
        walked = query("jobs/next_due", wanted=_WANTED_BY[self.by] if self.by else _WANTED)
        return query("jobs/next_due_of_few", newest=self.newest, next=walked) if self.few else walked

    @property
    def count(self) -> str:
        """The query for how many they are."""
        if self.q is not None:
            return query("jobs/count", found=_FOUND_ANY)
        return query("jobs/count", found=self.newest if self.few else _ANY)

    @property
    def few(self) -> bool:
        """Whether they may be few among many."""
        return (self.job_type, self.tenant, self.priority, self.q) != (None, None, None, None)


def list_jobs(
    connection: Connection, wanted: JobFilter, limit: int, after: tuple[datetime, str] | None = None
) -> JobPage:
    """Return at most so many jobs, newest first, from where the last page ended; fewer of those that are large."""
    before, before_id = after or (None, None)
    values = wanted.values() | {"limit": limit, "before": before, "before_id": before_id}
    with translated(), connection.cursor() as cursor:
        execute_if_repeated(cursor, query("jobs/page", newest=wanted.newest, **_PAGE_PARTS), values)
        rows = kept = cursor.fetchall()
        size = LARGE_VALUES.inline_size(rows)
        if size is None or size > MAX_CLAIM_BYTES:
            [kept], _ = LARGE_VALUES.fetch(CursorReader(cursor), [rows])
        page = JobPage(_rows(cursor, kept))
        page.cut = len(kept) < len(rows)
        return page


def page_of_job_ids(
    connection: Connection, wanted: JobFilter, limit: int, after: tuple[datetime, str] | None = None
) -> list[ListRow]:
    """Return which jobs are on a page, without all that is known of them."""
    before, before_id = after or (None, None)
    values = wanted.values() | {"limit": limit, "before": before, "before_id": before_id}
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("jobs/page_ids", newest=wanted.newest), values)
        return [ListRow(*row) for row in cursor]


def list_next_jobs(
    connection: Connection, wanted: JobFilter, limit: int, after: tuple[datetime, str] | None = None
) -> list[JobRow]:
    """Return at most so many of the pending jobs, those due next first, without their payloads."""
    pending = replace(wanted, status="pending")
    if wanted.status not in (None, "pending"):
        return []
    due_after, due_after_id = after or ("-infinity", str(UUID(int=0)))
    values = pending.values() | {"limit": _FEW_NEXT, "shown": limit, "before": None, "before_id": None,
                                 "due_after": due_after, "due_after_id": due_after_id}
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("jobs/page_next", next=pending.next, **_NEXT_PARTS), values)
        return _rows(cursor, cursor.fetchall())


def count_jobs(connection: Connection, wanted: JobFilter, most: int) -> int:
    """Count the jobs that match, up to `most`."""
    with translated(), connection.cursor() as cursor:
        values = wanted.values() | {"limit": most, "before": None, "before_id": None}
        cursor.execute(wanted.count, values)
        [(found,)] = cursor.fetchall()
        return int(found)


def find_job(connection: Connection, job_id: str) -> JobRow | None:
    """Return one job, None if nobody has asked for it."""
    with translated(), connection.cursor() as cursor:
        return find_with(cursor, job_id)


def find_with(cursor: Cursor, job_id: str) -> JobRow | None:
    """Return one job, in a transaction that is open."""
    execute_prepared(cursor, _FIND, job_id)
    found = _rows(cursor, cursor.fetchall())
    return found[0] if found else None


def _rows(cursor: Cursor, rows: Iterable[tuple[Any, ...]]) -> list[JobRow]:
    """Return what was asked for, with the last run's status of those that are tracked."""
    found = [_row(row) for row in rows]
    tracked = {row.job.id: row.beside for row in found if row.job.definition and row.job.definition.run}
    if tracked:
        last_due_ats = [beside.last_due_at for beside in tracked.values()]
        cursor.execute(_LAST_RUN_STATUSES, {"ids": list(tracked), "last_due_ats": last_due_ats})
        for job_id, status in cursor:
            tracked[job_id].last_run_status = status
    return found


def _row(row: tuple[Any, ...]) -> JobRow:
    return JobRow(read(row), JobListColumns(*row[len(COLUMNS) :]))


def _ids(beginning: str) -> tuple[str | None, str | None]:
    """Return the first and the last UUID that begin so; nothing where none does."""
    text = beginning.lower()
    shape = "".join("-" if each == "-" else "x" if each in "0123456789abcdef" else "?" for each in text)
    if not text or len(text) > len(_UUID) or not _UUID.startswith(shape):
        return None, None
    rest = _UUID[len(text) :]
    return text + rest.replace("x", "0"), text + rest.replace("x", "f")


_WATCHED = query("console/watched_jobs", newest=query("jobs/page_ids", newest=_NEWEST), **_PARTS)


def watched_jobs(connection: Connection, job_ids: Iterable[str], newest: int) -> list[JobRow]:
    """Return these jobs and so many of the newest of all, in no order, in one statement."""
    values = JobFilter().values() | {"before": None, "before_id": None, "ids": list(job_ids), "limit": newest}
    with translated(), connection.cursor() as cursor:
        cursor.execute(_WATCHED, values)
        return [_row(row) for row in cursor]
