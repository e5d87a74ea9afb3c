"""Matching wall times: the product of days and times of day, without a zone."""
# The classes are not frozen, for speed: each run of a job creates new instances.

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from scheduler.domain.recurrence.day_masks import DAY, LAST_DAY, DaySet, count_days, has_day, next_day
from scheduler.domain.recurrence.times_of_day import Times


class Walls(Protocol):
    """An ordered set of wall times, in seconds."""

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""

    def count(self, first: int, end: int) -> int:
        """Return the number of members from `first` to `end`, exclusive."""

    def flags(self, first: int, end: int) -> bytes:
        """Return one byte per second from `first` to `end`, exclusive: 1 for a member."""


def includes(walls: Walls, wall: int) -> bool:
    """Return whether `wall` is a member."""
    return walls.next_from(wall, wall) is not None


@dataclass(slots=True)
class DaysAndTimes:
    """Every matching day at every matching time."""

    days: DaySet
    times: Times

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        if wall > last:
            return None
        day, second = divmod(wall, DAY)
        times = self.times
        index = times.rank(second)
        if index == times.size:
            day, index = day + 1, 0
        matching = next_day(self.days, day, min(last // DAY, LAST_DAY))
        if matching is None:
            return None
        member = matching * DAY + times.at(index if matching == day else 0)
        return member if member <= last else None

    def count(self, first: int, end: int) -> int:
        """Return the number of members from `first` to `end`, exclusive."""
        return self._before(end) - self._before(first) + self._whole(first, end) if first < end else 0

    def flags(self, first: int, end: int) -> bytes:
        """Return one byte per second from `first` to `end`, exclusive: 1 for a member."""
        rows = []
        while first < end:
            day, second = divmod(first, DAY)
            size = min(end - first, DAY - second)
            matches = day <= LAST_DAY and has_day(self.days, day)
            rows.append(_times_row(self.times, second, second + size) if matches else bytes(size))
            first += size
        return b"".join(rows)

    def _whole(self, first: int, end: int) -> int:
        return count_days(self.days, first // DAY, end // DAY) * self.times.size

    def _before(self, wall: int) -> int:
        """Return the number of members before `wall` on its day."""
        day, second = divmod(wall, DAY)
        return self.times.rank(second) if second and day <= LAST_DAY and has_day(self.days, day) else 0


@lru_cache(maxsize=256)  # up to 86 kB each, mostly 3.6
def _times_row(times: Times, first: int, end: int) -> bytes:
    """Return one byte per second of the day from `first` up to `end`; cached, because gaps repeat."""
    row = bytearray(end - first)
    for index in range(times.rank(first), times.rank(end)):
        row[times.at(index) - first] = 1
    return bytes(row)


@dataclass(slots=True)
class Between:
    """The members of a set within two bounds, both included."""

    walls: Walls
    first: int
    last: int

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        return self.walls.next_from(max(wall, self.first), min(last, self.last))

    def count(self, first: int, end: int) -> int:
        """Return the number of members from `first` to `end`, exclusive."""
        first, end = max(first, self.first), min(end, self.last + 1)
        return self.walls.count(first, end) if first < end else 0

    def flags(self, first: int, end: int) -> bytes:
        """Return one byte per second from `first` to `end`, exclusive: 1 for a member."""
        low, high = max(first, self.first), min(end, self.last + 1)
        if low >= high:
            return bytes(end - first)
        return bytes(low - first) + self.walls.flags(low, high) + bytes(end - high)


@dataclass(slots=True)
class Without:
    """A set without the members of certain days."""

    walls: Walls
    days: frozenset[int]

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        member = self.walls.next_from(wall, last)
        while member is not None and member // DAY in self.days:
            member = self.walls.next_from((member // DAY + 1) * DAY, last)
        return member

    def count(self, first: int, end: int) -> int:
        """Return the number of members from `first` to `end`, exclusive."""
        total = self.walls.count(first, end)
        for day in self.days:
            low, high = max(first, day * DAY), min(end, (day + 1) * DAY)
            if low < high:
                total -= self.walls.count(low, high)
        return total

    def flags(self, first: int, end: int) -> bytes:
        """Return one byte per second from `first` to `end`, exclusive: 1 for a member."""
        row = bytearray(self.walls.flags(first, end))
        for day in self.days:
            low, high = max(first, day * DAY), min(end, (day + 1) * DAY)
            if low < high:
                row[low - first : high - first] = bytes(high - low)
        return bytes(row)
