"""Read and write calendars of the caller's tenant and of all tenants."""

import re
from collections.abc import Sequence
from datetime import date
from functools import partial

from scheduler.api import cursors
from scheduler.api.actions import caller_of
from scheduler.api.database import Database
from scheduler.api.fair_threads import FairThreads
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import Conflict, NotFound, Unprocessable
from scheduler.commands.apply_calendars import CalendarInUse, NoSuchCalendar, delete_one, store_one
from scheduler.domain.calendars import CalendarKey
from scheduler.domain.errors import Problem
from scheduler.domain.message_parser import parse_command
from scheduler.domain.tenants import CALENDAR_NAME_PATTERN, DEFAULT_TENANT, EVERY_TENANT, OWNER_PATTERN
from scheduler.postgres.calendars import (
    CalendarFilter,
    CalendarJob,
    CalendarRow,
    find_calendar,
    jobs_of_calendar,
    list_calendars,
)
from scheduler.settings import Settings
from scheduler.views.base import Page
from scheduler.views.calendars import MAX_DAYS, CalendarView, DayView, calendar_view, days


class CalendarService:
    """The service behind /calendars and its pages."""

    def __init__(self, database: Database, compute: FairThreads, settings: Settings) -> None:
        self._database = database
        self._compute = compute
        self._max_payload_bytes = settings.max_payload_bytes

    async def list(
        self, who: Identity, owner: str | None, limit: int, after: str | None = None
    ) -> Page[CalendarView]:
        """Return a page of the calendars that an owner can use, by name."""
        check(who, Permission.READ)
        filters = _visible(who, owner)
        return Page([]) if filters is None else await self._page(filters, limit, after)

    async def list_all(self, who: Identity, limit: int, after: str | None = None) -> Page[CalendarView]:
        """Return a page of all calendars that the caller may see, by name and owner."""
        check(who, Permission.READ)
        filters = CalendarFilter(owner=who.tenant, counted=who.tenant)
        return await self._page(filters, limit, after)

    async def _page(self, filters: CalendarFilter, limit: int, after: str | None) -> Page[CalendarView]:
        position = cursors.read_strings("calendars", after)
        rows = await self._database.search(lambda at: list_calendars(at, filters, limit, position))
        views = await self._compute.run(lambda: [calendar_view(row) for row in rows])
        last = rows[-1] if rows else None
        return Page(views, None if last is None or not await self._has_more(filters, last)
                    else cursors.write_strings("calendars", last.name, last.tenant))

    async def _has_more(self, filters: CalendarFilter, last: CalendarRow) -> bool:
        position = last.name, last.tenant
        return bool(await self._database.search(lambda at: list_calendars(at, filters, 1, position)))

    async def row(self, who: Identity, name: str, owner: str | None) -> CalendarRow:
        """Return the calendar with a name that an owner can use. Raises NotFound."""
        check(who, Permission.READ)
        filters = _visible(who, owner, name) if re.fullmatch(CALENDAR_NAME_PATTERN, name) else None
        row = None if filters is None else await self._database.read(lambda at: find_calendar(at, filters))
        if row is None:
            raise _not_found(name)
        return row

    async def get(self, who: Identity, name: str, owner: str | None) -> CalendarView:
        """Return one calendar."""
        row = await self.row(who, name, owner)
        return await self._compute.run(partial(calendar_view, row))

    async def jobs(self, who: Identity, row: CalendarRow, limit: int) -> Sequence[CalendarJob]:
        """Return the pending and paused jobs that use a calendar and that the caller may see."""
        wanted = CalendarFilter(owner=row.tenant, name=row.name, counted=who.tenant)
        return await self._database.search(lambda at: jobs_of_calendar(at, wanted, limit))

    async def days(
        self, who: Identity, name: str, owner: str | None, first: date | None, last: date | None
    ) -> Page[DayView]:
        """Return each day from `first` to `last`, both included."""
        if first is None or last is None:
            raise Unprocessable([Problem("from" if first is None else "to", "is required")])
        if not 0 <= (last - first).days < MAX_DAYS:
            raise Unprocessable([Problem("to", f"must be from 0 to {MAX_DAYS - 1} days after `from`")])
        row = await self.row(who, name, owner)
        return Page(await self._compute.run(lambda: list(days(row.content, first, last))))

    async def put(
        self, who: Identity, name: str, owner: str | None, body: bytes
    ) -> tuple[CalendarView, bool]:
        """Store a calendar; return it, and whether it is new. Raises Conflict if a newer command was applied."""
        key = _writable(who, name, owner)
        fixed_fields = {"name": key.name, "tenant": key.tenant}
        incoming = await self._compute.run(lambda: parse_command(
            "calendar", body or b"{}", max_payload_bytes=self._max_payload_bytes, fixed_fields=fixed_fields
        ))
        incoming.caller = caller_of(who)
        outcome, row = await self._database.write(lambda at: store_one(at, incoming))
        if outcome.status == "superseded":
            raise Conflict("A newer command was applied before this one.")
        is_new = outcome.before is None or outcome.before.content is None
        return await self._compute.run(partial(calendar_view, row)), is_new

    async def delete(self, who: Identity, name: str, owner: str | None) -> CalendarView:
        """Delete a calendar and return it. Raises Conflict while jobs use it."""
        key = _writable(who, name, owner)
        try:
            row = await self._database.write(lambda at: delete_one(at, key, caller_of(who)))
        except NoSuchCalendar:
            raise _not_found(name) from None
        except CalendarInUse as used:
            raise Conflict(f"{used}: cancel them, or request them with another calendar.") from None
        return calendar_view(row)


def _visible(who: Identity, owner: str | None, name: str | None = None) -> CalendarFilter | None:
    """Return the calendars that the caller may see; None for another tenant's."""
    _check_owner(owner)
    if owner is None:
        owner = who.tenant or DEFAULT_TENANT
    if who.tenant is not None and owner not in (who.tenant, EVERY_TENANT):
        return None
    return CalendarFilter(owner=owner, name=name, counted=who.tenant)


def _writable(who: Identity, name: str, owner: str | None) -> CalendarKey:
    """Return the key of a calendar that the caller may write. Raises Forbidden or NotFound."""
    check(who, Permission.WRITE)
    _check_owner(owner)
    if owner == EVERY_TENANT:
        check(who, Permission.WRITE_ALL)
    owner = owner or who.tenant or DEFAULT_TENANT
    if who.tenant not in (None, owner) or not re.fullmatch(CALENDAR_NAME_PATTERN, name):
        if who.tenant in (None, owner):
            raise Unprocessable([Problem("name", "must be 1 to 100 of A-Z a-z 0-9 . _ -")])
        raise _not_found(name)
    return CalendarKey(name, owner)


def _check_owner(owner: str | None) -> None:
    if owner is not None and not re.fullmatch(OWNER_PATTERN, owner):
        raise Unprocessable([Problem("tenant", "must be 1 to 100 of A-Z a-z 0-9 . _ -, or *")])


def _not_found(name: str) -> NotFound:
    return NotFound(f"There is no calendar {name[:100]}.")
