"""Explain the effect of daylight saving time on an occurrence."""

from datetime import datetime

from scheduler.domain.recurrence.day_masks import DAY
from scheduler.domain.recurrence.schedule import Recurring, Schedule, to_instant, to_seconds
from scheduler.domain.recurrence.timeline import AsShown, FirstPass, RightAfter, Timeline
from scheduler.domain.recurrence.wall_times import includes
from scheduler.domain.recurrence.zones import NEARBY, Shift


def dst_note(schedule: Schedule, instant: datetime) -> str:
    """Return the effect of a clock change on the occurrence at `instant`; empty without one."""
    if not isinstance(schedule, Recurring):
        return ""
    timeline, seconds = schedule.timeline, to_seconds(instant)[0]
    shift = timeline.clock.shift(seconds - NEARBY, seconds)
    if shift and shift.gap and seconds < shift.at + shift.size:
        return _after_gap(timeline, shift, seconds)
    if shift and not shift.gap and seconds < shift.at + shift.size:
        wall = seconds + shift.after
        return f"{_day_and_time(wall)} happens twice: second pass" if isinstance(timeline, AsShown) else ""
    wall = seconds + timeline.clock.offset(seconds)
    first, second = timeline.clock.offsets_of_wall(wall)
    if first > second:
        passes = "first pass" if isinstance(timeline, AsShown) else "runs in the first pass only"
        return f"{_day_and_time(wall)} happens twice: {passes}"
    return ""


def _after_gap(timeline: Timeline, shift: Shift, seconds: int) -> str:
    """Explain an occurrence shortly after a gap."""
    shown = seconds + shift.after
    if isinstance(timeline, RightAfter):
        skipped = timeline.walls.next_from(shift.at + shift.before, shift.at + shift.after - 1)
        if skipped is None or seconds != shift.at:
            return ""
    else:
        skipped = seconds + shift.before
        if not isinstance(timeline, FirstPass) or not includes(timeline.walls, skipped):
            return ""
    merged = ", together with the run due then" if includes(timeline.walls, shown) else ""
    return f"{_time(skipped)} does not exist on {_day(skipped)}: runs at {_time(shown, skipped)}{merged}"


def _day_and_time(wall: int) -> str:
    return f"{_time(wall)} on {_day(wall)}"


def _day(wall: int) -> str:
    when = to_instant(wall)
    return f"{when.day} {when:%B}"


def _time(wall: int, reference: int | None = None) -> str:
    when = to_instant(wall)
    clock = f"{when:%H:%M:%S}" if when.second else f"{when:%H:%M}"
    moved = reference is not None and wall // DAY != reference // DAY
    return f"{clock} on {_day(wall)}" if moved else clock
