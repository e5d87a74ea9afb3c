"""Plan a schedule again with other zone data: its wall times stay, and their instants change."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from scheduler.domain.recurrence.named_wall_times import named_walls
from scheduler.domain.recurrence.schedule import Recurring, Schedule, to_instant, to_seconds
from scheduler.domain.recurrence.spec import Spec, compile_schedule, wall_seconds
from scheduler.domain.recurrence.zones import Clock

_MAX_SETTLED = 100  # emitted instants to step over one by one
_MAX_SHIFT = timedelta(days=1)


def move(
    spec: Spec, next_run_at: datetime, old: Clock | None, new: Clock, now: datetime
) -> tuple[Spec, datetime | None]:
    """Return the spec and the next run by new zone data.

    `old` is the clock that `next_run_at` was planned with; None if it is unknown. Occurrences before `next_run_at`
    are settled: neither their wall times nor their instants occur again.
    """
    moved = moved_spec(spec, old, new, now)
    if spec.one_shot:
        return moved, moved.starts_at
    after = compile_schedule(moved, new)
    if old is None:
        return moved, _nearest(after, next_run_at)
    before = compile_schedule(spec, old)
    second, micro = to_seconds(next_run_at)
    if _is_added(before, second) and _is_added(after, second):
        return moved, next_run_at  # an RDATE in UTC
    wall = named_walls(before, spec, old).wall(second)
    start = to_instant(named_walls(after, moved, new).instant(wall), micro)
    return moved, next(_unsettled(before, after, start, next_run_at), None)


def _is_added(schedule: Schedule, second: int) -> bool:
    return isinstance(schedule, Recurring) and second in schedule.added


def _unsettled(before: Schedule, after: Schedule, start: datetime, next_run_at: datetime) -> Iterator[datetime]:
    """Yield occurrences from `start` on, without instants at which one was settled: those have its event_id."""
    for instant in islice(after.since(start), _MAX_SETTLED):
        if instant >= next_run_at or not before.fires_at(instant):
            yield instant
    yield from after.since(max(start, next_run_at))


def _nearest(after: Schedule, next_run_at: datetime) -> datetime | None:
    """Return the occurrence nearest to a next run that was planned with unknown zone data."""
    if after.fires_at(next_run_at):
        return next_run_at
    following = after.next_after(next_run_at)
    earlier = after.newest(next_run_at, 1, next_run_at - _MAX_SHIFT)
    if earlier and (following is None or next_run_at - earlier[0] <= following - next_run_at):
        return earlier[0]
    return following


def moved_spec(spec: Spec, old: Clock | None, new: Clock, now: datetime) -> Spec:
    """Return the spec with its start, if it is still to come, and the last run by COUNT at the same wall times."""
    starts_at, ends_at = spec.starts_at, spec.ends_at
    if starts_at > now:
        if spec.dtstart is not None:
            starts_at = to_instant(new.to_utc(wall_seconds(spec.dtstart)), spec.dtstart.microsecond)
        elif old is not None and spec.cron is not None:
            starts_at = _same_wall(starts_at, old, new)
    if ends_at is not None and old is not None:
        second, micro = to_seconds(ends_at)
        wall = named_walls(compile_schedule(spec, old), spec, old).wall(second)
        ends_at = to_instant(new.to_utc(wall), micro)
    if starts_at is spec.starts_at and ends_at is spec.ends_at:
        return spec
    return replace(spec, starts_at=starts_at, ends_at=ends_at)


def _same_wall(instant: datetime, old: Clock, new: Clock) -> datetime:
    second, micro = to_seconds(instant)
    return to_instant(new.to_utc(second + old.offset(second)), micro)
