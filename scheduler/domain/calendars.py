"""Stored calendars: their content, and the outcome of a command for one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from json import dumps, loads
from typing import Any, NamedTuple

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.issued_at import TRUSTED_AHEAD, check_issued_at
from scheduler.domain.messages.calendars import CalendarStatus, ScheduleCalendar
from scheduler.domain.recurrence.adjustment_fields import (
    CALENDAR_FIELDS,
    MAX_DATES,
    read_calendar,
    read_fields,
    rejected_fields,
)
from scheduler.domain.recurrence.business_calendar import BusinessCalendar
from scheduler.domain.recurrence.window import WEEKDAYS

CALENDAR_BYTES = 8 * 1024 * 1024  # of a command: more than 10,000 names of 200 characters need
_EMPTY: dict[str, Any] = {"weekend": [], "closed": {}, "open": {}, "valid_until": None}
_LAST_FIELD = '"valid_until":'  # no name of a date contains it: in JSON its quotes are escaped
_MICROSECOND = timedelta(microseconds=1)


class CalendarKey(NamedTuple):
    """The identity of a calendar."""

    name: str
    tenant: str  # the owner


@dataclass(frozen=True, slots=True)
class StoredCalendar:
    """The row of a calendar."""

    name: str
    tenant: str
    content: str | None  # JSON text as by `content_text`; None: deleted
    version: int
    issued_at: datetime  # of the newest command

    @property
    def key(self) -> CalendarKey:
        """Its identity."""
        return CalendarKey(self.name, self.tenant)


class EffectiveCalendar(NamedTuple):
    """The calendar that applies to a tenant's jobs: its own, or that of all tenants."""

    calendar: BusinessCalendar
    version: int
    revision: int  # different for each state of the calendars with one name


FindEffective = Callable[[str, str], EffectiveCalendar | None]  # by tenant and name
FindFormer = Callable[[str, int], BusinessCalendar | None]  # by name and revision
_ALWAYS_OPEN = EffectiveCalendar(BusinessCalendar(frozenset(), {}, {}), 0, 0)


def no_calendar(tenant: str, name: str) -> EffectiveCalendar | None:  # noqa: ARG001 - a FindEffective
    """Find no calendar."""
    return None


def no_former(name: str, revision: int) -> BusinessCalendar | None:  # noqa: ARG001 - a FindFormer
    """Find no former state of a calendar."""
    return None


def any_calendar(tenant: str, name: str) -> EffectiveCalendar | None:  # noqa: ARG001 - a FindEffective
    """Find a calendar without closed days for every name, to check a request without a database."""
    return _ALWAYS_OPEN


@dataclass(frozen=True, slots=True)
class CalendarOutcome:
    """A calendar after a command, and the status of the reply."""

    calendar: StoredCalendar
    status: CalendarStatus
    before: StoredCalendar | None = None


def check_content(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a calendar's content that are given. Raises Rejected with their problems."""
    given = {name: value for name, value in fields.items() if name in CALENDAR_FIELDS and value is not None}
    reject_many_dates(given)
    problems: list[Problem] = []
    if read_fields(given, problems) is None:
        raise rejected_fields(problems)
    return given


def content_text(fields: Mapping[str, Any]) -> str:
    """Return the content of a calendar as JSON in normal form. Raises Rejected with its problems."""
    content = _EMPTY | check_content(fields)
    content["weekend"] = [day for day in WEEKDAYS if day in content["weekend"]]
    for name in ("closed", "open"):
        dates = content[name]
        content[name] = {day: dates[day] for day in sorted(dates)}
    return dumps(content, ensure_ascii=False, separators=(",", ":"))


def reject_many_dates(fields: Mapping[str, Any]) -> None:
    """Raise Rejected for too many dates before each of them is checked."""
    listed = (fields.get(name) for name in ("closed", "open"))
    if sum(len(dates) for dates in listed if isinstance(dates, Mapping)) > MAX_DATES:
        problem = f"closed and open have at most {MAX_DATES:,} dates together"
        raise Rejected([Problem("closed", problem)])


def content_fields(content: str) -> dict[str, Any]:
    """Return the fields of a stored content."""
    fields: dict[str, Any] = loads(content)
    return fields


@lru_cache(maxsize=64)  # up to a few MB each
def business_calendar(content: str) -> BusinessCalendar:
    """Return the calendar of a stored content."""
    problems: list[Problem] = []
    calendar = read_calendar(content_fields(content), problems)
    if calendar is None:
        raise ValueError(f"stored calendar: {problems[0].problem}")
    return calendar


def valid_until(content: str | None) -> date | None:
    """Return the last day on which the listed dates count, if there is one."""
    text = None if content is None else loads(content[content.rindex(_LAST_FIELD) + len(_LAST_FIELD) : -1])
    return None if text is None else date.fromisoformat(text)


def store_calendar(
    stored: StoredCalendar | None, command: ScheduleCalendar, owner: str, now: datetime
) -> CalendarOutcome:
    """Return the outcome of a command; the newest `issued_at` wins, regardless of the order of arrival."""
    content = content_text({name: getattr(command, name) for name in CALENDAR_FIELDS})
    check_issued_at(command.issued_at, now)
    issued = command.issued_at or _issued_after_stored(stored, now)
    if stored is None:
        return CalendarOutcome(StoredCalendar(command.name, owner, content, 1, issued), "stored")
    if stored.content == content:
        if issued <= stored.issued_at:
            return CalendarOutcome(stored, "unchanged" if issued == stored.issued_at else "superseded", stored)
        return CalendarOutcome(replace(stored, issued_at=issued), "unchanged", stored)
    # Different contents with the same issued_at: the order of arrival must not matter.
    tied = issued == stored.issued_at and stored.content is not None and content > stored.content
    if issued <= stored.issued_at and not tied:
        return CalendarOutcome(stored, "superseded", stored)
    changed = replace(stored, content=content, version=stored.version + 1, issued_at=issued)
    return CalendarOutcome(changed, "stored", stored)


def delete_calendar(stored: StoredCalendar, now: datetime) -> StoredCalendar:
    """Return the deleted calendar, which still supersedes older commands."""
    return replace(stored, content=None, version=stored.version + 1, issued_at=_issued_after_stored(stored, now))


def _issued_after_stored(stored: StoredCalendar | None, now: datetime) -> datetime:
    """Return the issued_at of a command without one: now, but after the stored command."""
    if stored is None or stored.issued_at < now or stored.issued_at - now > TRUSTED_AHEAD:
        return now
    return stored.issued_at + _MICROSECOND
