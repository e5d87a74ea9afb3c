"""A calendar of one job's year: past outcomes, planned runs, and clock changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

from scheduler.api.console.formatting import count
from scheduler.domain.recurrence import Schedule, zone

WEEKS = 53
WEEKS_BACK = 26
CELL = 13
_DAY = timedelta(days=1)
_BAD = ("dead",)
_OUTCOMES = {"succeeded": "succeeded", "dead": "dead", "cancelled": "cancelled", "emitted": "emitted"}


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """One day of the calendar."""

    x: int
    y: int
    kind: str  # good, bad, mixed, open, planned, none
    today: bool
    clocks: bool  # the clocks change on it
    title: str


@dataclass(frozen=True, slots=True)
class CalendarYear:
    """The days, and the months with the positions of their first days."""

    days: tuple[CalendarDay, ...]
    months: tuple[tuple[int, str], ...]


def build_year(
    outcomes: Mapping[date, Mapping[str, int]], schedule: Schedule | None, timezone: str, now: datetime
) -> CalendarYear:
    """Return half a year before and after `now`, in weeks from Monday, in the job's time zone."""
    here = zone(timezone)
    today = now.astimezone(here).date()
    first = today - timedelta(days=today.weekday(), weeks=WEEKS_BACK)
    midnights = [datetime.combine(first + timedelta(days=n), time(), here) for n in range(WEEKS * 7 + 1)]
    days, months = [], []
    for number, (midnight, following) in enumerate(pairwise(midnights)):
        day = midnight.date()
        week, weekday = divmod(number, 7)
        planned = _planned(schedule, max(midnight.astimezone(UTC), now), following.astimezone(UTC))
        past = outcomes.get(day, {})
        clocks = following.astimezone(UTC) - midnight.astimezone(UTC) != _DAY
        days.append(CalendarDay(week * CELL, weekday * CELL, _kind(past, planned), day == today, clocks,
                        _title(day, past, planned, clocks=clocks)))
        if day.day == 1:
            months.append((week * CELL, f"{day:%b}"))
    return CalendarYear(tuple(days), tuple(months))


def _planned(schedule: Schedule | None, after: datetime, until: datetime) -> int:
    if schedule is None or until <= after:
        return 0
    micro = timedelta(microseconds=1)
    return schedule.count(after - micro, until - micro)


def _kind(past: Mapping[str, int], planned: int) -> str:
    bad = sum(past.get(name, 0) for name in _BAD)
    good = past.get("succeeded", 0) + past.get("emitted", 0)
    if bad:
        return "mixed" if good else "bad"
    if good:
        return "good"
    if past:
        return "open"
    return "planned" if planned else "none"


def _title(day: date, past: Mapping[str, int], planned: int, *, clocks: bool) -> str:
    parts = [f"{number:,} {_OUTCOMES.get(name, name)}" for name, number in sorted(past.items())]
    parts += [f"{count(planned, 'run')} planned"] if planned else []
    parts += ["the clocks change"] if clocks else []
    return f"{day:%a} {day.day} {day:%b %Y}: {', '.join(parts) or 'nothing'}"
