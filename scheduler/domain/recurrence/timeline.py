"""Convert wall times to instants, with three ways to handle skipped and repeated hours.

All values are whole seconds. `next_from` is the hot path: it queries the zone only near its start and its end.
"""
# The classes are not frozen, for speed: each run of a job creates new instances.

from dataclasses import dataclass

from scheduler.domain.recurrence.day_masks import DAY
from scheduler.domain.recurrence.wall_times import Walls, includes
from scheduler.domain.recurrence.zones import NEARBY, Clock, Shift


@dataclass(slots=True)
class Timeline:
    """The instants of wall times in a zone; subclasses define the behaviour around a shift."""

    walls: Walls
    clock: Clock

    def next_from(self, instant: int, last: int) -> int | None:
        """Return the first occurrence from `instant` to `last`, or None."""
        _, end, offset, settled = self.clock.segment(instant)
        if instant < settled:
            return self.next_near_shift(instant, last)
        wall = self.walls.next_from(instant + offset, last + DAY)
        if wall is not None:
            second = wall - offset
            if second >= end:
                _, final, offset, settled = self.clock.segment(second)
                second = wall - offset
                if instant + NEARBY >= end or not settled <= second < final:
                    return self.next_near_shift(instant, last)
            return second if second <= last else None
        return None if instant + NEARBY < end else self.next_near_shift(instant, last)

    def next_near_shift(self, instant: int, last: int) -> int | None:
        """Return the same if a clock change is near `instant` or before the wall time found."""
        raise NotImplementedError

    def count(self, first: int, end: int) -> int:
        """Return the number of occurrences from `first` to `end`, exclusive."""
        if first >= end:
            return 0
        walls, clock = self.walls, self.clock
        low, high = first + clock.offset(first), end + clock.offset(end - 1)
        total = walls.count(low, high) if low <= high else -walls.count(high, low)
        for shift in clock.shifts(first - NEARBY, end - 1):
            if first < shift.at and shift.at + shift.size <= end:
                total += self.passing(shift)
                continue
            if first < shift.at:
                total += _jump(walls, shift)
            low, high = max(first, shift.at), min(end, shift.at + shift.size)
            if low < high:
                total += self.correction(shift, low, high)
        return total

    def passing(self, shift: Shift) -> int:
        """Return the number of instants around a shift minus the number of wall times there."""
        return _jump(self.walls, shift) + self.correction(shift, shift.at, shift.at + shift.size)

    def correction(self, shift: Shift, low: int, high: int) -> int:
        """Return the number of instants in [low, high) minus the number of wall times that the clock shows."""
        raise NotImplementedError


def _jump(walls: Walls, shift: Shift) -> int:
    """Return the number of repeated wall times minus the number of skipped ones."""
    if shift.gap:
        return -walls.count(shift.at + shift.before, shift.at + shift.after)
    return walls.count(shift.at + shift.after, shift.at + shift.before)


@dataclass(slots=True)
class FirstPass(Timeline):
    """RFC 5545: a skipped time uses the offset before the gap, a repeated one its first pass."""

    def next_near_shift(self, instant: int, last: int) -> int | None:
        """Return the same if a clock change is near `instant` or before the wall time found."""
        clock, second = self.clock, None
        start = instant + clock.offset(instant)
        shift = clock.shift(instant - NEARBY, instant)
        if shift and instant < shift.at + shift.size:
            if shift.gap:  # skipped times that are still to come
                skipped = self.walls.next_from(instant + shift.before, shift.at + shift.after - 1)
                second = None if skipped is None else skipped - shift.before
            else:  # nothing runs in the second pass
                start = shift.at + shift.before
        shown = self._at_or_after(start, last)
        if second is None or (shown is not None and shown < second):
            second = shown
        return second if second is not None and second <= last else None

    def _at_or_after(self, start: int, last: int) -> int | None:
        wall = self.walls.next_from(start, last + DAY)
        if wall is None:
            return None
        before, after = self.clock.offsets_of_wall(wall)
        if after <= before:
            return wall - before
        gap = self.clock.shift(wall - before - NEARBY, wall - before)
        rival = self.walls.next_from(gap.at + gap.after, wall - before + gap.after) if gap else None
        # A time just after the gap can be earlier than a skipped time.
        return wall - before if rival is None or gap is None else min(wall - before, rival - gap.after)

    def passing(self, shift: Shift) -> int:
        """Return the number of instants around a shift minus the number of wall times there."""
        # A repeated time runs once, and so does a skipped one that does not coincide with another time.
        if not shift.gap or self.walls.next_from(shift.at + shift.before, shift.at + shift.after - 1) is None:
            return 0
        skipped, shown = self._flags(shift, shift.at, shift.at + shift.size)
        return -(skipped & shown).bit_count()

    def correction(self, shift: Shift, low: int, high: int) -> int:
        """Return the number of instants in [low, high) minus the number of wall times that the clock shows."""
        if not shift.gap:
            return -self.walls.count(low + shift.after, high + shift.after)
        if self.walls.next_from(low + shift.before, high + shift.before - 1) is None:
            return 0
        skipped, shown = self._flags(shift, low, high)
        return (skipped & ~shown).bit_count()

    def _flags(self, shift: Shift, low: int, high: int) -> tuple[int, int]:
        """Return the skipped and the shown wall times in [low, high) as bit masks."""
        rows = (self.walls.flags(low + offset, high + offset) for offset in (shift.before, shift.after))
        skipped, shown = (int.from_bytes(row, "big") for row in rows)
        return skipped, shown


@dataclass(slots=True)
class RightAfter(Timeline):
    """Debian cron, fixed times: skipped ones run once right after the gap, repeated ones once."""

    def next_near_shift(self, instant: int, last: int) -> int | None:
        """Return the same if a clock change is near `instant` or before the wall time found."""
        clock = self.clock
        start = instant + clock.offset(instant)
        shift = clock.shift(instant - NEARBY, instant)
        if shift and shift.gap and instant == shift.at:
            start = instant + shift.before
        elif shift and not shift.gap and instant < shift.at + shift.size:
            start = shift.at + shift.before
        wall = self.walls.next_from(start, last + DAY)
        if wall is None:
            return None
        gap = clock.gap_around(wall)
        second = gap.at if gap else clock.to_utc(wall)
        return second if second <= last else None

    def correction(self, shift: Shift, low: int, high: int) -> int:
        """Return the number of instants in [low, high) minus the number of wall times that the clock shows."""
        if not shift.gap:
            return -self.walls.count(low + shift.after, high + shift.after)
        if low != shift.at or includes(self.walls, shift.at + shift.after):
            return 0
        return int(self.walls.next_from(low + shift.before, low + shift.after - 1) is not None)


@dataclass(slots=True)
class AsShown(Timeline):
    """Debian cron, wildcard times: run whenever the clock shows them; skipped ones never, repeated ones twice."""

    def next_near_shift(self, instant: int, last: int) -> int | None:
        """Return the same if a clock change is near `instant` or before the wall time found."""
        clock = self.clock
        while instant <= last:
            offset = clock.offset(instant)
            wall = self.walls.next_from(instant + offset, last + DAY)
            if wall == instant + offset:
                return instant
            shift = clock.shift(instant, instant + NEARBY)
            if shift and (wall is None or wall - offset >= shift.at):
                instant = shift.at
                continue
            if wall is None:
                return None
            gap = None
            if wall - offset <= instant + NEARBY:
                second = wall - offset
            else:
                gap = clock.gap_around(wall)
                second = clock.to_utc(wall)
            if not gap:
                return second if second <= last else None
            instant = gap.at
        return None

    def correction(self, shift: Shift, low: int, high: int) -> int:  # noqa: ARG002 - no correction needed
        """Return the number of instants in [low, high) minus the number of wall times that the clock shows."""
        return 0
