"""Views of calendars and of their days."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from scheduler.domain.calendars import business_calendar, content_fields
from scheduler.domain.messages import Instant
from scheduler.domain.messages.jobs import Weekday
from scheduler.postgres.calendars import CalendarRow
from scheduler.views.base import View

MAX_DAYS = 366


class CalendarView(View):
    """A calendar."""

    name: str
    tenant: str
    weekend: list[Weekday]
    closed: dict[str, str]
    open: dict[str, str]
    valid_until: str | None
    version: int
    jobs: int
    updated_at: Instant
    updated_by: str | None


class DayView(View):
    """One day of a calendar; `name` is that of the listed date."""

    date: str
    open: bool
    name: str | None


def calendar_view(row: CalendarRow) -> CalendarView:
    """Return the view of a stored calendar."""
    fields: dict[str, Any] = content_fields(row.content)
    # Skip validation for speed: the values come from the database.
    return CalendarView.model_construct(
        name=row.name, tenant=row.tenant, **fields, version=row.version, jobs=row.jobs, updated_at=row.updated_at,
        updated_by=row.updated_by,
    )


def days(content: str, first: date, last: date) -> Iterator[DayView]:
    """Yield the days from `first` to `last`, both included."""
    calendar = business_calendar(content)
    for day in range(first.toordinal(), last.toordinal() + 1):
        is_open = calendar.is_open(day)
        listed = calendar.opened if is_open else calendar.closed
        name = (listed.get(day) or None) if day <= calendar.valid_until else None
        yield DayView(date=date.fromordinal(day).isoformat(), open=is_open, name=name)
