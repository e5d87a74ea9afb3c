"""Matching wall times: days crossed with times of day, before any zone comes in."""

from dataclasses import dataclass
from typing import Protocol

from scheduler.domain.recurrence.calendar import DAY, LAST_DAY, Days, count_days, has_day, next_day
from scheduler.domain.recurrence.times import Times

# A search gives up after so many candidate days: more than 100 years of them, and still milliseconds.
PATIENCE = 40_000


class Walls(Protocol):
    """An ordered set of wall times, in seconds."""

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""

    def count(self, first: int, end: int) -> int:
        """Return how many members there are from `first` up to, not including, `end`."""


def includes(walls: Walls, wall: int) -> bool:
    """Say whether `wall` is a member."""
    return walls.next_from(wall, wall) is not None


@dataclass(frozen=True, slots=True)
class DaysAndTimes:
    """Every matching day at every matching time."""

    days: Days
    times: Times

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        if wall > last:
            return None
        day, second = divmod(wall, DAY)
        if second and day <= LAST_DAY and has_day(self.days, day):
            index = self.times.rank(second)
            if index < self.times.size:
                found = day * DAY + self.times.at(index)
                return found if found <= last else None
        following = next_day(self.days, day + 1 if second else day, last // DAY)
        if following is None:
            return None
        found = following * DAY + self.times.at(0)
        return found if found <= last else None

    def count(self, first: int, end: int) -> int:
        """Return how many members there are from `first` up to, not including, `end`."""
        return self._before(end) - self._before(first) + self._whole(first, end) if first < end else 0

    def _whole(self, first: int, end: int) -> int:
        return count_days(self.days, first // DAY, end // DAY) * self.times.size

    def _before(self, wall: int) -> int:
        """Return how many members the day of `wall` has before it."""
        day, second = divmod(wall, DAY)
        return self.times.rank(second) if second and day <= LAST_DAY and has_day(self.days, day) else 0


@dataclass(frozen=True, slots=True)
class Between:
    """The members of a set within two bounds, both included."""

    walls: Walls
    first: int
    last: int

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        return self.walls.next_from(max(wall, self.first), min(last, self.last))

    def count(self, first: int, end: int) -> int:
        """Return how many members there are from `first` up to, not including, `end`."""
        first, end = max(first, self.first), min(end, self.last + 1)
        return self.walls.count(first, end) if first < end else 0


@dataclass(frozen=True, slots=True)
class Without:
    """A set without the members of certain days."""

    walls: Walls
    days: frozenset[int]

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        found = self.walls.next_from(wall, last)
        while found is not None and found // DAY in self.days:
            found = self.walls.next_from((found // DAY + 1) * DAY, last)
        return found

    def count(self, first: int, end: int) -> int:
        """Return how many members there are from `first` up to, not including, `end`."""
        total = self.walls.count(first, end)
        for day in self.days:
            low, high = max(first, day * DAY), min(end, (day + 1) * DAY)
            if low < high:
                total -= self.walls.count(low, high)
        return total
