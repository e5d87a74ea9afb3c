"""Map occurrences to the wall times that a schedule names, and back. In a gap they differ from the clock."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from scheduler.domain.recurrence.day_masks import DAY
from scheduler.domain.recurrence.schedule import Once, Recurring, Schedule, to_seconds
from scheduler.domain.recurrence.spec import Spec, wall_seconds
from scheduler.domain.recurrence.timeline import FirstPass, RightAfter
from scheduler.domain.recurrence.wall_times import Walls, includes
from scheduler.domain.recurrence.zones import NEARBY, Clock, Shift, clock

_AROUND = 3 * DAY  # a shift further from the middle of a day does not affect the day


class Offsets(NamedTuple):
    """The smallest and largest offset of a local day, and the shifts around it."""

    low: int
    high: int
    shifts: tuple[Shift, ...]


class Piece(NamedTuple):
    """Instants from `first` up to `end` whose occurrences are named `offset` seconds later."""

    first: int
    end: int
    offset: int
    only: tuple[int, ...] | None = None  # limited to these, in order
    but: tuple[int, ...] = ()  # except these, in order


class Stretch(NamedTuple):
    """Wall times from `first` up to `end` whose instants are `offset` seconds earlier, or all at `at`."""

    first: int
    end: int
    offset: int
    at: int | None


def near(local: Clock, second: int) -> Offsets:
    """Return the offsets around an instant or a wall time."""
    start, end, offset, _ = local.segment(second)
    if start + _AROUND <= second < end - _AROUND:
        return Offsets(offset, offset, ())
    shifts = tuple(local.shifts(second - _AROUND, second + _AROUND))
    offsets = [offset, *(shift.before for shift in shifts), *(shift.after for shift in shifts)]
    return Offsets(min(offsets), max(offsets), shifts)


@dataclass(slots=True, eq=False)
class NamedWalls:
    """The wall times that a schedule names, in its zone."""

    schedule: Schedule
    clock: Clock
    only: int | None = None  # the wall time of a one-shot if it is in a gap
    _gaps: dict[Shift, tuple[int, ...]] = field(default_factory=dict)

    def wall(self, second: int) -> int:
        """Return the named wall time of the occurrence at an instant, without its fraction."""
        if self.only is not None:
            return self.only
        _, _, offset, settled = self.clock.segment(second)
        schedule = self.schedule
        if second >= settled or not isinstance(schedule, Recurring):
            return second + offset
        timeline = schedule.timeline
        gap = self.clock.shift(second - NEARBY, second)
        if gap is None or not gap.gap or second >= gap.at + gap.size:
            return second + offset
        if includes(timeline.walls, second + gap.after):
            return second + offset
        if isinstance(timeline, FirstPass) and includes(timeline.walls, second + gap.before):
            return second + gap.before
        if isinstance(timeline, RightAfter) and second == gap.at:
            skipped = timeline.walls.next_from(gap.at + gap.before, gap.at + gap.after - 1)
            return second + offset if skipped is None else skipped
        return second + offset

    def instant(self, wall: int) -> int:
        """Return the instant of an occurrence with this wall time."""
        if self._right_after_gaps and (gap := self.clock.gap_around(wall)) is not None:
            return gap.at
        return self.clock.to_utc(wall)

    def earliest_day(self, second: int) -> int:
        """Return a lower bound for the named days of occurrences from this instant on."""
        return (second + near(self.clock, second).low if self.only is None else self.only) // DAY

    def offsets(self, day: int) -> Offsets:
        """Return the offsets of a local day."""
        return near(self.clock, day * DAY + DAY // 2)

    def pieces(self, day: int) -> Iterator[Piece]:
        """Yield the instants of occurrences named on `day`, which has a shift around it."""
        low, high, shifts = self.offsets(day)
        if self.only is not None:
            second = to_seconds(self.schedule.starts_at)[0]
            if self.only // DAY == day:
                yield Piece(second, second + 1, self.only - second)
            return
        first, end = day * DAY - high, (day + 1) * DAY - low
        cuts = {shift.at for shift in shifts} | {shift.at + shift.size for shift in shifts if shift.gap}
        edges = [first, *sorted(cut for cut in cuts if first < cut < end), end]
        for start, stop in pairwise(edges):
            gap = next((s for s in shifts if s.gap and s.at <= start < s.at + s.size), None)
            yield from self._pieces(day, start, stop, gap)

    def _pieces(self, day: int, start: int, stop: int, gap: Shift | None) -> Iterator[Piece]:
        skipped = () if gap is None else self._skipped(gap)
        offset = self.clock.offset(start)
        first, end = max(start, day * DAY - offset), min(stop, (day + 1) * DAY - offset)
        if first < end:
            yield Piece(first, end, offset, but=skipped)
        if gap is None or not skipped:
            return
        offset = gap.before if skipped[0] != gap.at else self.wall(gap.at) - gap.at
        first, end = max(start, day * DAY - offset), min(stop, (day + 1) * DAY - offset)
        if first < end:
            yield Piece(first, end, offset, only=skipped)

    def _skipped(self, gap: Shift) -> tuple[int, ...]:
        """Return the instants after a gap whose named times are in the gap."""
        if gap not in self._gaps:
            timeline = self.schedule.timeline if isinstance(self.schedule, Recurring) else None
            instants: tuple[int, ...] = ()
            if isinstance(timeline, RightAfter) and self.wall(gap.at) != gap.at + gap.after:
                instants = (gap.at,)
            elif isinstance(timeline, FirstPass):
                instants = tuple(gap.at + index for index in _only_in_first(timeline.walls, gap))
            self._gaps[gap] = instants
        return self._gaps[gap]

    def stretches(self, day: int) -> Iterator[Stretch]:
        """Yield the wall times of `day` with their conversion to instants."""
        low, _, shifts = self.offsets(day)
        first, end, after = day * DAY, (day + 1) * DAY, low
        for shift in shifts:
            after = shift.after
            skipped = shift.at + shift.before
            if shift.gap and self._right_after_gaps:
                yield from _stretch(first, min(end, skipped), shift.before, None)
                yield from _stretch(max(first, skipped), min(end, shift.at + shift.after), shift.before, shift.at)
            else:  # skipped: the offset before the gap; repeated: the first pass
                yield from _stretch(first, min(end, shift.at + max(shift.before, shift.after)), shift.before, None)
            first = max(first, shift.at + max(shift.before, shift.after))
        yield from _stretch(first, end, after, None)

    @property
    def _right_after_gaps(self) -> bool:
        return isinstance(self.schedule, Recurring) and isinstance(self.schedule.timeline, RightAfter)


def _only_in_first(walls: Walls, gap: Shift) -> Iterator[int]:
    """Yield the seconds of a gap that are members although the wall times at the same instants are not."""
    first = gap.at + gap.before
    if walls.next_from(first, gap.at + gap.after - 1) is None:
        return
    skipped, shown = walls.flags(first, first + gap.size), walls.flags(first + gap.size, first + 2 * gap.size)
    both = int.from_bytes(skipped, "big") & ~int.from_bytes(shown, "big")
    row = both.to_bytes(gap.size, "big")
    index = row.find(1)
    while index >= 0:
        yield index
        index = row.find(1, index + 1)


def _stretch(first: int, end: int, offset: int, at: int | None) -> Iterator[Stretch]:
    if first < end:
        yield Stretch(first, end, offset, at)


def named_walls(schedule: Schedule, spec: Spec, local: Clock | None = None) -> NamedWalls:
    """Return the wall times that the compiled schedule of `spec` names; `local` is a clock of other zone data."""
    if isinstance(schedule, Recurring):
        return NamedWalls(schedule, schedule.timeline.clock)
    named = NamedWalls(schedule, local or clock(spec.timezone))
    if isinstance(schedule, Once) and spec.dtstart is not None:
        wall, second = wall_seconds(spec.dtstart), to_seconds(schedule.starts_at)[0]
        if wall != second + named.clock.offset(second):
            named.only = wall
    return named
