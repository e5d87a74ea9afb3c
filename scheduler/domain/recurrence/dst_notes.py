"""What daylight saving did to an occurrence, in words."""

from datetime import datetime

from scheduler.domain.recurrence.day_masks import DAY
from scheduler.domain.recurrence.schedule import Recurring, Schedule, to_instant, to_seconds
from scheduler.domain.recurrence.timeline import AsShown, FirstPass, RightAfter, Timeline
from scheduler.domain.recurrence.wall_times import includes
from scheduler.domain.recurrence.zones import NEARBY, Shift


def dst_note(schedule: Schedule, instant: datetime) -> str:
    """Return how the clocks moved, merged or doubled the occurrence at `instant`; empty if they did not."""
    if not isinstance(schedule, Recurring):
        return ""
    timeline, seconds = schedule.timeline, to_seconds(instant)[0]
    shift = timeline.clock.shift(seconds - NEARBY, seconds)
    if shift and shift.gap and seconds < shift.at + shift.size:
        return _after_gap(timeline, shift, seconds)
    if shift and not shift.gap and seconds < shift.at + shift.size:
        again = seconds + shift.after
        return f"{_day_and_time(again)} happens twice: second pass" if isinstance(timeline, AsShown) else ""
    wall = seconds + timeline.clock.offset(seconds)
    first, second = timeline.clock.offsets_of_wall(wall)
    if first > second:
        passes = "first pass" if isinstance(timeline, AsShown) else "runs in the first pass only"
        return f"{_day_and_time(wall)} happens twice: {passes}"
    return ""


def _after_gap(timeline: Timeline, shift: Shift, seconds: int) -> str:
    """Explain an occurrence within a gap's length after the gap."""
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


def _time(wall: int, beside: int | None = None) -> str:
    when = to_instant(wall)
    clock = f"{when:%H:%M:%S}" if when.second else f"{when:%H:%M}"
    moved = beside is not None and wall // DAY != beside // DAY
    return f"{clock} on {_day(wall)}" if moved else clock
