"""Lock, find, store and list calendars."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from scheduler.domain.calendars import CalendarKey, StoredCalendar, valid_until
from scheduler.postgres.connection import Connection, Cursor, translated
from scheduler.resources import query

MAX_PAGE_BYTES = 8 * 1024 * 1024  # of the contents of a page
_SPACE = 0x5C4EDCA1  # of the advisory locks by name


@dataclass(frozen=True, slots=True)
class CalendarRow:
    """A listed calendar; `jobs` counts the pending and paused jobs that use it."""

    name: str
    tenant: str
    content: str
    version: int
    updated_at: datetime
    updated_by: str | None
    jobs: int


@dataclass(frozen=True, slots=True)
class CalendarJob:
    """A job that uses a calendar."""

    id: str
    tenant: str
    name: str | None
    job_type: str
    next_run_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarFilter:
    """The calendars that an owner can use; `counted` limits the count of jobs to one tenant."""

    owner: str | None  # None: every owner's
    name: str | None = None
    counted: str | None = None


def lock_names(cursor: Cursor, changed: Iterable[str], used: Iterable[str]) -> None:
    """Lock the calendars with these names until the transaction ends, in an order that prevents deadlocks."""
    exclusive = set(changed)
    for name in sorted({*exclusive, *used}):
        shared = "" if name in exclusive else "_shared"
        cursor.execute(query("calendars/lock_name", shared=shared), {"space": _SPACE, "name": name})


def find_stored(cursor: Cursor, keys: Iterable[CalendarKey]) -> dict[CalendarKey, StoredCalendar]:
    """Return the rows of calendars, also of deleted ones."""
    names, tenants = zip(*sorted(set(keys)), strict=True)
    cursor.execute(query("calendars/find"), {"names": list(names), "tenants": list(tenants)})
    rows = (StoredCalendar(*row) for row in cursor.fetchall())
    return {calendar.key: calendar for calendar in rows}


def save_calendar(cursor: Cursor, calendar: StoredCalendar, who: str | None, *, changed: bool) -> None:
    """Store a locked calendar; `changed` unless only its `issued_at` differs."""
    cursor.execute(query("calendars/save"), asdict(calendar) | {
        "valid_until": valid_until(calendar.content), "who": who, "changed": changed,
    })


def list_calendars(
    connection: Connection, wanted: CalendarFilter, limit: int, after: tuple[str, str] = ("", "")
) -> list[CalendarRow]:
    """Return the next calendars after a name and owner; fewer than `limit` if their contents are large."""
    with translated(), connection.cursor() as cursor:
        return _page(cursor, wanted, limit, after)


def find_calendar(connection: Connection, wanted: CalendarFilter) -> CalendarRow | None:
    """Return the calendar with a name that an owner can use: its own, or else that of all tenants."""
    with translated(), connection.cursor() as cursor:
        return find_with(cursor, wanted)


def find_with(cursor: Cursor, wanted: CalendarFilter) -> CalendarRow | None:
    """Return the calendar with a name in a transaction."""
    return next(iter(_page(cursor, wanted, 1, ("", ""))), None)


def _page(cursor: Cursor, wanted: CalendarFilter, limit: int, after: tuple[str, str]) -> list[CalendarRow]:
    cursor.execute(query("calendars/page"), asdict(wanted) | {
        "limit": limit, "after_name": after[0], "after_tenant": after[1], "bytes": MAX_PAGE_BYTES,
    })
    return [CalendarRow(*row) for row in cursor.fetchall()]


def jobs_of_calendar(connection: Connection, wanted: CalendarFilter, limit: int) -> list[CalendarJob]:
    """Return pending and paused jobs that use a calendar, up to `limit`."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("calendars/jobs_of"), asdict(wanted) | {"limit": limit})
        return [CalendarJob(*row) for row in cursor]
