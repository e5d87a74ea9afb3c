"""A year day by day: a job's outcomes, planned runs and clock changes, or a calendar's open and closed days."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

from scheduler.api.console.formatting import count, join_words
from scheduler.api.console.year_plan import YearPlan
from scheduler.domain.recurrence import zone
from scheduler.domain.recurrence.business_calendar import BusinessCalendar

WEEKS = 53
WEEKS_BACK = 26
CELL = 13
_DAY = timedelta(days=1)
_SOURCES_NAMED = 3
_BAD = ("dead",)
_OUTCOMES = {"succeeded": "succeeded", "dead": "dead", "cancelled": "cancelled", "emitted": "emitted"}


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """One day of the calendar."""

    date: date
    x: int
    y: int
    kind: str  # good, bad, mixed, open, planned, closed, none
    today: bool
    clocks: bool  # the clocks change on it
    moved: bool  # occurrences of other days are emitted on it
    title: str


@dataclass(frozen=True, slots=True)
class CalendarYear:
    """The days, and the months with the positions of their first days."""

    days: tuple[CalendarDay, ...]
    months: tuple[tuple[int, str], ...]

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds and marks on it, for the legend."""
        marks = {"moved"} if any(day.moved for day in self.days) else set()
        return frozenset({day.kind for day in self.days} | marks)


def build_year(outcomes: Mapping[date, Mapping[str, int]], plan: YearPlan, timezone: str,
               now: datetime) -> CalendarYear:
    """Return half a year before and after `now`, in weeks from Monday, in the job's time zone."""
    here = zone(timezone)
    today = now.astimezone(here).date()
    first = today - timedelta(days=today.weekday(), weeks=WEEKS_BACK)
    midnights = [datetime.combine(first + timedelta(days=n), time(), here) for n in range(WEEKS * 7 + 1)]
    days = []
    for number, (midnight, following) in enumerate(pairwise(midnights)):
        day = midnight.date()
        start, end = midnight.astimezone(UTC), following.astimezone(UTC)
        planned = plan.planned(day, max(start, now), end)
        closed, moved = plan.closed(day), plan.moved_from(day)
        past, clocks = outcomes.get(day, {}), end - start != _DAY
        title = _title(day, past, planned, closed=closed, moved=moved, clocks=clocks)
        kind = _kind(past, planned, closed=closed is not None)
        days.append(_cell(number, day, kind, title, today=day == today, clocks=clocks, moved=bool(moved)))
    return CalendarYear(tuple(days), _months(first))


def year_of_calendar(calendar: BusinessCalendar, year: int, today: date) -> CalendarYear:
    """Return one year of a calendar, in weeks from Monday."""
    first = date(year, 1, 1)
    first -= timedelta(days=first.weekday())
    days = []
    for number in range(WEEKS * 7 + 7):
        day = first + timedelta(days=number)
        if day.year == year:
            days.append(_cell(number, day, *_state(calendar, day), today=day == today))
    return CalendarYear(tuple(days), _months(first, year))


def _state(calendar: BusinessCalendar, day: date) -> tuple[str, str]:
    """Return kind and title of a day of a calendar: closed by a date or by its weekday, or open."""
    ordinal = day.toordinal()
    listed = ordinal <= calendar.valid_until
    if calendar.is_open(ordinal):
        exception = listed and ordinal in calendar.opened
        name = calendar.opened.get(ordinal) if exception else None
        return "good" if exception else "none", f"{_date(day)}: open{f' ({name})' if name else ''}"
    if listed and ordinal in calendar.closed:
        return "holiday", f"{_date(day)}: closed ({calendar.closed[ordinal] or 'listed'})"
    return "closed", f"{_date(day)}: closed ({day:%A})"


def _cell(number: int, day: date, kind: str, title: str, *, today: bool, clocks: bool = False,
          moved: bool = False) -> CalendarDay:
    week, weekday = divmod(number, 7)
    return CalendarDay(day, week * CELL, weekday * CELL, kind, today, clocks, moved, title)


def _months(first: date, year: int | None = None) -> tuple[tuple[int, str], ...]:
    days = (first + timedelta(days=number) for number in range(WEEKS * 7))
    return tuple((number // 7 * CELL, f"{day:%b}") for number, day in enumerate(days)
                 if day.day == 1 and year in (None, day.year))


def _kind(past: Mapping[str, int], planned: int, *, closed: bool) -> str:
    bad = sum(past.get(name, 0) for name in _BAD)
    good = past.get("succeeded", 0) + past.get("emitted", 0)
    if bad:
        return "mixed" if good else "bad"
    if good:
        return "good"
    if past:
        return "open"
    if planned:
        return "planned"
    return "closed" if closed else "none"


def _title(day: date, past: Mapping[str, int], planned: int, *, closed: str | None, moved: Sequence[date],
           clocks: bool) -> str:
    parts = [f"{number:,} {_OUTCOMES.get(name, name)}" for name, number in sorted(past.items())]
    parts += [f"{count(planned, 'run')} planned"] if planned else []
    parts += [f"moved from {join_words([_short(source) for source in moved[:_SOURCES_NAMED]])}"] if moved else []
    parts += [f"closed ({closed})" if closed else "closed"] if closed is not None else []
    parts += ["the clocks change"] if clocks else []
    return f"{_date(day)}: {', '.join(parts) or 'nothing'}"


def _date(day: date) -> str:
    return f"{day:%a} {day.day} {day:%b %Y}"


def _short(day: date) -> str:
    return f"{day:%a} {day.day} {day:%b}"
