"""Bounds of the nominal instants that a calendar moves to an instant, and of the instants it moves them to.

A calendar keeps the order of days, but not the order of the instants on them: Saturday at 20:00 moved to Monday is
later than Sunday at 09:00 moved to Monday.
"""

from datetime import datetime

from scheduler.domain.recurrence.business_calendar import OnClosed
from scheduler.domain.recurrence.day_masks import DAY
from scheduler.domain.recurrence.moved_days import END, Days, MovedDays, moment
from scheduler.domain.recurrence.schedule import to_seconds


def earliest_moved(days: Days, nominal: datetime) -> datetime:
    """Return a lower bound of the moved instants of the occurrences after a nominal instant."""
    if not isinstance(days, MovedDays) or days.on_closed is OnClosed.SKIP:
        return nominal
    day = days.names.wall(to_seconds(nominal)[0]) // DAY
    target = days.calendar.target(day, days.on_closed)
    if target is None:
        return _start(days, day)
    if days.names.offsets(day).shifts or days.names.offsets(target).shifts or _last_source(days, target) != day:
        return _start(days, target)
    return days.moved(nominal) or _start(days, target)


def earliest_source(days: Days, moved: datetime) -> datetime:
    """Return a lower bound of the nominal instants of occurrences whose moved instant is not earlier."""
    if not isinstance(days, MovedDays) or days.on_closed is OnClosed.SKIP:
        return moved
    second = to_seconds(moved)[0]
    day = days.calendar.next_open((second + days.names.offsets(second // DAY).low) // DAY)
    return END if day is None else _start(days, days.calendar.sources(day, days.on_closed)[0])


def latest_source(days: Days, moved: datetime) -> datetime:
    """Return an upper bound of the nominal instants of occurrences whose moved instant is not later."""
    if not isinstance(days, MovedDays) or days.on_closed in (OnClosed.SKIP, OnClosed.NEXT):
        return moved
    second = to_seconds(moved)[0]
    last = _last_source(days, (second + days.names.offsets(second // DAY).high) // DAY)
    return moment((last + 1) * DAY - days.names.offsets(last).low)


def _last_source(days: MovedDays, day: int) -> int:
    """Return the last day whose occurrences are not moved beyond `day`."""
    last = day
    while (target := days.calendar.target(last + 1, days.on_closed)) is not None and target <= day:
        last += 1
    return last


def _start(days: MovedDays, day: int) -> datetime:
    return moment(day * DAY - days.names.offsets(day).high)
