"""Find the calendars that apply to jobs; contents are cached by revision."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from scheduler.domain.calendars import EffectiveCalendar, business_calendar
from scheduler.domain.jobs.job import Job
from scheduler.domain.recurrence.business_calendar import BusinessCalendar
from scheduler.postgres.connection import Connection, Cursor, translated
from scheduler.resources import query

Run = Callable[[str, dict[str, Any]], Sequence[tuple[Any, ...]]]
_MAX_CACHED = 200
_cache: dict[tuple[str, str, int], EffectiveCalendar] = {}  # by name, owner and revision; dicts are thread-safe


class TenantCalendar(NamedTuple):
    """The name of a calendar, and the tenant of the jobs that use it."""

    tenant: str
    name: str


Effective = dict[TenantCalendar, EffectiveCalendar]


def find_effective(cursor: Cursor, wanted: Iterable[TenantCalendar]) -> Effective:
    """Return the calendars that exist."""
    return _find(runner(cursor), wanted)


def runner(cursor: Cursor) -> Run:
    """Return a function that executes a statement and returns its rows."""

    def run(statement: str, values: dict[str, Any]) -> Sequence[tuple[Any, ...]]:
        cursor.execute(statement, values)
        return cursor.fetchall()

    return run


def read_effective(connection: Connection, key: TenantCalendar) -> Effective:
    """Return one calendar, if it exists."""
    with translated(), connection.cursor() as cursor:
        return find_effective(cursor, [key])


def _find(run: Run, wanted: Iterable[TenantCalendar]) -> Effective:
    keys = sorted(set(wanted))
    if not keys:
        return {}
    tenants, names = zip(*keys, strict=True)
    values = {"names": list(names), "tenants": list(tenants)}
    rows = run(query("calendars/effective", content=""), values)
    if any((name, owner, revision) not in _cache for _, name, owner, _, revision in rows):
        rows = run(query("calendars/effective", content=", content::text"), values)
    return {TenantCalendar(row[0], row[1]): _read(row) for row in rows}


def _read(row: tuple[Any, ...]) -> EffectiveCalendar:
    _, name, owner, version, revision, *content = row
    key = name, owner, revision
    if (cached := _cache.get(key)) is not None:
        return cached
    if len(_cache) >= _MAX_CACHED:
        _cache.clear()
    _cache[key] = EffectiveCalendar(business_calendar(*content), version, revision)
    return _cache[key]


class JobCalendars:
    """The calendars of the jobs in the last claim, or in a batch that is planned again."""

    def __init__(self) -> None:
        self._effective: Effective = {}
        self._former: dict[tuple[str, int], BusinessCalendar] = {}  # by name and revision

    def load(self, run: Run, jobs: Iterable[Job]) -> None:
        """Read the current calendars of jobs and the revisions that planned them; `run` executes a statement."""
        wanted = [
            (TenantCalendar(job.tenant, job.definition.spec.calendar), job.calendar_revision) for job in jobs
            if job.definition is not None and job.definition.spec.calendar is not None
        ]
        self._effective = _find(run, (key for key, _ in wanted)) if wanted else {}
        former = {
            (key.name, revision) for key, revision in wanted
            if revision is not None and key in self._effective and self._effective[key].revision != revision
        }
        self._former = {key: self._former[key] for key in former & self._former.keys()}
        if missing := sorted(former - self._former.keys()):
            names, revisions = zip(*missing, strict=True)
            rows = run(query("calendars/former"), {"names": list(names), "revisions": list(revisions)})
            self._former |= {(name, revision): business_calendar(content) for name, revision, content in rows}

    def find(self, tenant: str, name: str) -> EffectiveCalendar | None:
        """Return the calendar of one of the jobs."""
        return self._effective.get(TenantCalendar(tenant, name))

    def find_former(self, name: str, revision: int) -> BusinessCalendar | None:
        """Return the calendar that planned one of the jobs, if it is still known."""
        return self._former.get((name, revision))
