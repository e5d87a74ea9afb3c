"""Rules by the hour, minute or second: steps from DTSTART, laid over the units of a day that are allowed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import gcd

from scheduler.domain.recurrence.calendar import (
    DAY,
    LAST_DAY,
    Days,
    bits,
    day_bits,
    january_first,
    next_day,
    year_of,
)
from scheduler.domain.recurrence.walls import PATIENCE

_YES = b"\x01"
_GLANCE = 64


@dataclass(slots=True)
class Steps:
    """Every `step` units from `origin`, on matching days and in allowed units, at given offsets in a unit."""

    days: Days
    every_day: bool
    unit: int  # seconds: 3600, 60 or 1
    step: int  # units
    origin: int  # the unit, counted from ordinal 0, that DTSTART lies in
    allowed: bytes | None  # one byte a unit of the day, 1 where allowed; None: all of them
    offsets: tuple[int, ...]  # seconds within a unit, in order, BYSETPOS applied; never empty
    _counts: dict[int, int] = field(default_factory=dict)

    @property
    def units(self) -> int:
        """Return the number of units in a day."""
        return DAY // self.unit

    def reachable(self) -> bool:
        """Say whether steps from the origin ever meet an allowed unit of the day."""
        common = gcd(self.step, self.units)
        return self.allowed is None or _YES in self.allowed[self.origin % common :: common]

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        if wall > last:
            return None
        units, final = self.units, min(last // DAY, LAST_DAY)
        day, second = divmod(wall, DAY)
        for _ in range(PATIENCE):
            matching = (
                next_day(self.days, day, final) if not self.every_day else day if day <= final else None
            )
            if matching is None:
                return None
            if matching != day:
                day, second = matching, 0
            phase = (self.origin - day * units) % self.step
            if phase >= units:  # no step falls on this day: go to the day of the next one
                day, second = day + phase // units, 0
                continue
            found = self._in_day(phase, second)
            if found is not None:
                found += day * DAY
                return found if found <= last else None
            day, second = day + 1, 0
        return None

    def _in_day(self, phase: int, second: int) -> int | None:
        """Return the first member of a day from `second` on, when the day's first step is at unit `phase`."""
        index, rest = divmod(second, self.unit)
        late = rest > self.offsets[-1]
        start = index + late
        start += (phase - start) % self.step
        found = self._allowed_from(start)
        if found is None:
            return None
        wanted = rest if found == index else 0
        return found * self.unit + next(offset for offset in self.offsets if offset >= wanted)

    def _allowed_from(self, index: int) -> int | None:
        """Return the first allowed unit at `index` or a whole number of steps after it."""
        step, allowed = self.step, self.allowed
        if index >= self.units:
            return None
        if allowed is None:
            return index
        if step == 1:
            found = allowed.find(_YES, index)
        else:
            found = allowed[index : index + _GLANCE * step : step].find(_YES)
            if found < 0:
                found = allowed[index::step].find(_YES)
            found = index + found * step if found >= 0 else -1
        return found if found >= 0 else None

    def count(self, first: int, end: int) -> int:
        """Return how many members there are from `first` up to, not including, `end`."""
        if first >= end:
            return 0
        low, high = first // DAY, end // DAY
        total = self._before(end) - self._before(first)
        if self.allowed is None and self.every_day:
            return total + (self._steps_before(high) - self._steps_before(low)) * len(self.offsets)
        return total + self._whole_days(low, high) * len(self.offsets)

    def _steps_before(self, day: int) -> int:
        return -((self.origin - day * self.units) // self.step)

    def _before(self, wall: int) -> int:
        """Return how many members the day of `wall` has before it."""
        day, second = divmod(wall, DAY)
        if not second or day > LAST_DAY or not day_bits(self.days, day, day + 1):
            return 0
        index, rest = divmod(second, self.unit)
        phase = (self.origin - day * self.units) % self.step
        total = self._count_units(phase, index) * len(self.offsets)
        if (
            (index - phase) % self.step == 0
            and index >= phase
            and (self.allowed is None or self.allowed[index])
        ):
            total += sum(offset < rest for offset in self.offsets)
        return total

    def _count_units(self, phase: int, end: int) -> int:
        if self.allowed is None:
            return len(range(phase, end, self.step))
        return self.allowed[phase : end : self.step].count(_YES)

    def _whole_days(self, low: int, high: int) -> int:
        """Return how many units match on the days from `low` up to, not including, `high`."""
        cycle = self.step // gcd(self.step, self.units)
        if self.every_day and cycle < high - low:
            rounds, rest = divmod(high - low, cycle)
            return rounds * self._sum(range(low, low + cycle)) + self._sum(range(low, low + rest))
        if self.every_day:
            return self._sum(range(low, high))
        total = 0
        for year in range(year_of(low), year_of(min(high, LAST_DAY)) + 1) if low < high else ():
            start = max(low, january_first(year))
            end = min(high, january_first(year + 1))
            mask = day_bits(self.days, start, end) if start < end else 0
            if cycle == 1:
                total += mask.bit_count() * self._in_whole_day(start)
            else:
                total += self._sum(start + bit for bit in bits(mask))
        return total

    def _sum(self, days: Iterable[int]) -> int:
        return sum(self._in_whole_day(day) for day in days)

    def _in_whole_day(self, day: int) -> int:
        phase = (self.origin - day * self.units) % self.step
        if phase >= self.units:
            return 0
        if self.step > self.units:
            return self._count_units(phase, self.units)
        known = self._counts.get(phase)
        if known is None:
            known = self._counts[phase] = self._count_units(phase, self.units)
        return known
