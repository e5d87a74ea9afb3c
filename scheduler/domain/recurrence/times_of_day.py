"""Matching seconds of a day: the product of hours, minutes and seconds, without listing it."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

HOUR = 3_600
MINUTE = 60


class Times(Protocol):
    """An ordered set of seconds of the day."""

    @property
    def size(self) -> int:
        """Return the number of members."""

    def rank(self, second: int) -> int:
        """Return the number of members smaller than `second`."""

    def at(self, index: int) -> int:
        """Return the member at `index`, counted from 0."""

    def __hash__(self) -> int:
        """Allow caching by times."""


@dataclass(slots=True, eq=False)
class OneTime:
    """One second of the day."""

    second: int
    size: ClassVar[int] = 1

    def rank(self, second: int) -> int:
        """Return the number of members smaller than `second`."""
        return 1 if self.second < second else 0

    def at(self, index: int) -> int:  # noqa: ARG002 - there is only one
        """Return the member at `index`, counted from 0."""
        return self.second


@dataclass(slots=True, eq=False)
class ListedTimes:
    """Seconds of the day, listed in order."""

    seconds: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of members."""
        return len(self.seconds)

    def rank(self, second: int) -> int:
        """Return the number of members smaller than `second`."""
        return bisect_left(self.seconds, second)

    def at(self, index: int) -> int:
        """Return the member at `index`, counted from 0."""
        return self.seconds[index]


@dataclass(slots=True, eq=False)
class ClockTimes:
    """Every combination of the given hours, minutes and seconds, each in order."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.hours) * len(self.minutes) * len(self.seconds)

    def rank(self, second: int) -> int:
        """Return the number of members smaller than `second`."""
        hour, rest = divmod(second, HOUR)
        hours = bisect_left(self.hours, hour)
        total = hours * len(self.minutes) * len(self.seconds)
        if hours == len(self.hours) or self.hours[hours] != hour:
            return total
        minute, rest = divmod(rest, MINUTE)
        minutes = bisect_left(self.minutes, minute)
        total += minutes * len(self.seconds)
        if minutes == len(self.minutes) or self.minutes[minutes] != minute:
            return total
        return total + bisect_left(self.seconds, rest)

    def at(self, index: int) -> int:
        """Return the member at `index`, counted from 0."""
        index, second = divmod(index, len(self.seconds))
        hour, minute = divmod(index, len(self.minutes))
        return self.hours[hour] * HOUR + self.minutes[minute] * MINUTE + self.seconds[second]


def clock_times(hours: tuple[int, ...], minutes: tuple[int, ...], seconds: tuple[int, ...]) -> Times:
    """Return the product of the three sets."""
    if len(hours) == len(minutes) == len(seconds) == 1:
        return OneTime(hours[0] * HOUR + minutes[0] * MINUTE + seconds[0])
    return ClockTimes(hours, minutes, seconds)


def pick(positions: tuple[int, ...], size: int) -> list[int]:
    """Return the sorted indexes that BYSETPOS `positions` select from a set of this size."""
    indexes = {position - 1 if position > 0 else size + position for position in positions}
    return sorted(index for index in indexes if 0 <= index < size)
