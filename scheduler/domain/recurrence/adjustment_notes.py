"""Explain why an occurrence is moved or not emitted."""

from datetime import datetime, timedelta

from scheduler.domain.recurrence.business_calendar import MAX_MOVE_DAYS, OnClosed
from scheduler.domain.recurrence.day_masks import DAY
from scheduler.domain.recurrence.dst_notes import dst_note
from scheduler.domain.recurrence.moved_days import moment
from scheduler.domain.recurrence.planner import Mover, PlannedOccurrence, Planner, SkippedOccurrence
from scheduler.domain.recurrence.schedule import to_seconds

_UNITS = ((3600, "h"), (60, "min"))


def adjustment_note(planner: Planner, occurrence: PlannedOccurrence, *, jitter_known: bool = True) -> str:
    """Return the reason for moving an occurrence; empty if it is not moved."""
    nominal = occurrence.nominal_at
    parts = []
    if Mover.CALENDAR in occurrence.moved:
        parts.append(f"{_closed(planner, nominal)}: moved to {_target(planner, nominal)}")
    else:
        parts.append(dst_note(planner.schedule, nominal))
    moved, planned = planner.steps(nominal)
    if Mover.WINDOW in occurrence.moved and moved is not None and planned is not None:
        parts.append(f"{_outside(planner, moved)}: moved to its next opening, {_day_and_time(planner, planned)}")
    if occurrence.merged:
        parts.append(f"one event for {occurrence.merged + 1:,} occurrences")
    if Mover.JITTER in occurrence.moved and planned is not None:
        parts.append(f"delayed by {_length(occurrence.due_at - planned)} (jitter)")
    elif planner.adjustments.jitter and not jitter_known:
        parts.append(f"delayed by up to {_length(planner.adjustments.jitter)} (jitter)")
    return "; ".join(part for part in parts if part)


def skip_note(planner: Planner, passed: SkippedOccurrence) -> str:
    """Return the reason for not emitting an occurrence."""
    nominal = passed.nominal_at
    moved, planned = planner.steps(nominal)
    if moved is None:
        return _closed(planner, nominal) + _no_open_day(planner.adjustments.on_closed)
    reasons = [f"{_closed(planner, nominal)}: moved to {_target(planner, nominal)}"] if moved != nominal else []
    if planned is None:
        outside = _outside(planner, moved)
        reasons.append(f"{outside}, which does not open on an open day within {MAX_MOVE_DAYS} days")
    elif planned != moved:
        reasons.append(_outside(planner, moved))
    if passed.into is not None:
        reasons.append(f"merged into the occurrence of {_named(planner, passed.into)}")
    return "; ".join(reasons)


def _closed(planner: Planner, nominal: datetime) -> str:
    day = planner.names.wall(to_seconds(nominal)[0]) // DAY
    calendar = planner.adjustments.calendar
    name = "" if calendar is None else calendar.closed_name(day)
    if not name:
        listed = calendar is not None and day <= calendar.valid_until and day in calendar.closed
        return f"{_day(day * DAY)} is closed" + ("" if listed else " (weekend)")
    return f"{_day(day * DAY)} is closed ({name})"


def _no_open_day(on_closed: OnClosed) -> str:
    if on_closed is OnClosed.SKIP:
        return ""
    if on_closed is OnClosed.NEXT_IN_MONTH:
        return ", and so is the rest of the month"
    return f", and no day within {MAX_MOVE_DAYS} days is open"


def _target(planner: Planner, nominal: datetime) -> str:
    """Return the day to which a calendar moves an occurrence, and the time if a clock change skips it there."""
    moved, _ = planner.steps(nominal)
    wall = planner.names.wall(to_seconds(nominal)[0])
    calendar, on_closed = planner.adjustments.calendar, planner.adjustments.on_closed
    target = None if calendar is None else calendar.target(wall // DAY, on_closed)
    if target is None or moved is None:
        return "no day"
    second = to_seconds(moved)[0]
    local = second + planner.names.clock.offset(second)
    if local == target * DAY + wall % DAY:
        return _day(target * DAY)
    return f"{_day(target * DAY)}, where {_time(wall)} does not exist: runs at {_time(local)}"


def _outside(planner: Planner, moved: datetime) -> str:
    second = to_seconds(moved)[0]
    local = second + planner.names.clock.offset(second)
    return f"{_time(local)} is outside the window {planner.adjustments.window}"


def _day_and_time(planner: Planner, instant: datetime) -> str:
    second = to_seconds(instant)[0]
    local = second + planner.names.clock.offset(second)
    return f"{_day(local)} {_time(local)}"


def _named(planner: Planner, nominal: datetime) -> str:
    wall = planner.names.wall(to_seconds(nominal)[0])
    return f"{_day(wall)} {_time(wall)}"


def _day(wall: int) -> str:
    when = moment(wall)
    return f"{when:%A} {when.day} {when:%B}"


def _time(wall: int) -> str:
    when = moment(wall)
    return f"{when:%H:%M:%S}" if when.second else f"{when:%H:%M}"


def _length(length: timedelta) -> str:
    """Format a duration with its two largest units."""
    seconds = length.total_seconds()
    if seconds < 1:
        return "less than 1 s"
    remaining, parts = int(seconds), []
    for size, unit in _UNITS:
        if remaining >= size:
            parts.append(f"{remaining // size} {unit}")
            remaining %= size
    if remaining:
        parts.append(f"{remaining} s")
    return " ".join(parts[:2])
