"""Hourly, minutely and secondly rules: steps from DTSTART, limited to the allowed units of a day."""

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from math import gcd

from scheduler.domain.recurrence.day_masks import (
    DAY,
    LAST_DAY,
    WEEK,
    DaySet,
    bits,
    day_bits,
    january_first,
    next_day,
    year_kind,
    year_of,
)

_YES = b"\x01"
_GLANCE = 64
_LISTED = 4_096  # longest cycle that is listed, in days
_MAX_YEAR = 366
_RARE = 8  # days between two steps
_AS_FLAGS = bytes.maketrans(b"01", b"\x00\x01")
# A search ends after this number of days without a member. With the days on which the steps reach an allowed unit,
# no rule has that many in 100 years.
MAX_STEPS = 2_000
_EMPTY_DAYS = 16  # days without a hit before computing the hits


@dataclass(slots=True)
class Steps:
    """Every `step` units from `origin`, on matching days and in allowed units, at given offsets in a unit."""

    days: DaySet
    every_day: bool
    unit: int  # seconds: 3600, 60 or 1
    step: int  # units
    origin: int  # DTSTART's unit, counted from ordinal 0
    allowed: bytes | None  # one byte per unit of the day: 1 if allowed; None: all
    offsets: tuple[int, ...]  # seconds within a unit, in order, BYSETPOS applied; never empty
    byday: tuple[tuple[int, int], ...] = ()  # the rule's weekdays, already applied to `days`
    _counts: dict[int, int] = field(default_factory=dict)
    _years: dict[tuple[int, ...], int] = field(default_factory=dict)
    _by_day: list[int] | None = None  # matching units per day of the cycle, without date filters
    _hits: "array[int] | None" = None  # not subscriptable before Python 3.12

    @property
    def units(self) -> int:
        """Return the number of units in a day."""
        return DAY // self.unit

    @property
    def slow_to_count(self) -> bool:
        """Return whether counting examines every day, because the cycle is long and the steps are many."""
        dense = self.allowed is not None and self.allowed.count(_YES) > _LISTED
        return self.cycle > _LISTED and self.step <= _RARE * self.units and (dense or not self.every_day)

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        if wall > last:
            return None
        units, final = self.units, min(last // DAY, LAST_DAY)
        day, second = divmod(wall, DAY)
        reachable = False  # the steps reach an allowed unit
        for attempt in range(MAX_STEPS):
            matching = next_day(self.days, day, final) if not self.every_day else day if day <= final else None
            if matching is None:
                return None
            if matching != day:
                day, second = matching, 0
            phase = (self.origin - day * units) % self.step
            if phase >= units:  # no step on this day: go to the day of the next one
                day, second = day + phase // units, 0
                continue
            member = self._in_day(phase, second)
            if member is not None:
                member += day * DAY
                return member if member <= last else None
            day, second = day + 1, 0
            if attempt > _EMPTY_DAYS:
                if not reachable and not self._meets():
                    return None
                reachable = True
                day = self._next_hit(day)
        return None

    def _in_day(self, phase: int, second: int) -> int | None:
        """Return the first member of a day from `second` on; the day's first step is at unit `phase`."""
        index, rest = divmod(second, self.unit)
        late = rest > self.offsets[-1]
        start = index + late
        start += (phase - start) % self.step
        unit = self._allowed_from(start)
        if unit is None:
            return None
        earliest = rest if unit == index else 0
        return unit * self.unit + next(offset for offset in self.offsets if offset >= earliest)

    def _allowed_from(self, index: int) -> int | None:
        """Return the first allowed unit at `index` or a whole number of steps after it."""
        step, allowed = self.step, self.allowed
        if index >= self.units:
            return None
        if allowed is None:
            return index
        if step == 1:
            unit = allowed.find(_YES, index)
        else:
            unit = allowed[index : index + _GLANCE * step : step].find(_YES)
            if unit < 0:
                unit = allowed[index::step].find(_YES)
            unit = index + unit * step if unit >= 0 else -1
        return unit if unit >= 0 else None

    def count(self, first: int, end: int) -> int:
        """Return the number of members from `first` to `end`, exclusive."""
        if first >= end:
            return 0
        low, high = first // DAY, end // DAY
        total = self._before(end) - self._before(first)
        return total + self._whole_days(low, high) * len(self.offsets)

    def flags(self, first: int, end: int) -> bytes:
        """Return one byte per second from `first` to `end`, exclusive: 1 for a member."""
        row = bytearray(end - first)
        for day in range(first // DAY, min((end - 1) // DAY, LAST_DAY) + 1):
            if day_bits(self.days, day, day + 1):
                base, phase = day * DAY - first, (self.origin - day * self.units) % self.step
                for offset in self.offsets:
                    self._mark(row, base + offset, phase)
        return bytes(row)

    def _mark(self, row: bytearray, base: int, phase: int) -> None:
        """Set the units of one day in `row`; unit 0 is at `base`, which may be outside."""
        low = max(phase, -(base // self.unit))
        low += (phase - low) % self.step
        high = min(self.units, -((base - len(row)) // self.unit))
        if low < high:
            positions = slice(base + low * self.unit, base + (high - 1) * self.unit + 1, self.step * self.unit)
            units = range(low, high, self.step)
            row[positions] = self.allowed[low : high : self.step] if self.allowed else _YES * len(units)

    def _before(self, wall: int) -> int:
        """Return the number of members before `wall` on its day."""
        day, second = divmod(wall, DAY)
        if not second or day > LAST_DAY or not day_bits(self.days, day, day + 1):
            return 0
        index, rest = divmod(second, self.unit)
        phase = (self.origin - day * self.units) % self.step
        total = self._count_units(phase, index) * len(self.offsets)
        if (index - phase) % self.step == 0 and index >= phase and (self.allowed is None or self.allowed[index]):
            total += sum(offset < rest for offset in self.offsets)
        return total

    def _count_units(self, phase: int, end: int) -> int:
        if self.allowed is None:
            return len(range(phase, end, self.step))
        return self.allowed[phase : end : self.step].count(_YES)

    def _whole_days(self, low: int, high: int) -> int:
        """Return the number of matching units on the days from `low` up to `high`, exclusive."""
        if self.every_day and not self.slow_to_count:
            return self._units_before(high) - self._units_before(low)
        total = 0
        for year in range(year_of(low), year_of(min(high, LAST_DAY)) + 1) if low < high else ():
            start, end = january_first(year), january_first(year + 1)
            if start < low or high < end:
                total += self._on_days(max(start, low), min(end, high))
                continue
            # Years of the same kind that start at the same phase have the same number.
            key = (*year_kind(year), (self.origin - start * self.units) % self.step)
            count = self._years.get(key)
            if count is None:
                count = self._years[key] = self._on_days(start, end)
            total += count
        return total

    def _on_days(self, start: int, end: int) -> int:
        """Return the number of matching units on the days from `start` up to `end`, exclusive, of one year."""
        mask = day_bits(self.days, start, end) if start < end else 0
        cycle = self.cycle
        if cycle == 1:
            return mask.bit_count() * self._in_whole_day(start)
        if cycle > _LISTED:
            if self.step > self.units:
                return self._count_steps(mask, start, end)
            return sum(self._in_whole_day(start + bit) for bit in bits(mask))
        if self._by_day is None:
            # Longer than the cycle by a year, so that a year can start anywhere in it.
            row = [self._in_whole_day(day) for day in range(cycle)]
            self._by_day = row * ((cycle + _MAX_YEAR) // cycle + 1)
        chosen = f"{mask:b}"[::-1].encode().translate(_AS_FLAGS)
        first = start % cycle
        return sum(compress(self._by_day[first : first + len(chosen)], chosen))

    def _count_steps(self, mask: int, start: int, end: int) -> int:
        """Return the number of matching steps on the days of `mask`, which has less than one step per day."""
        units, allowed, total = self.units, self.allowed, 0
        low, high = start * units, end * units
        for unit in range(low + (self.origin - low) % self.step, high, self.step):
            day, index = divmod(unit - low, units)
            total += mask >> day & 1 and (allowed is None or allowed[index])
        return total

    def _units_before(self, day: int) -> int:
        """Return the number of matching units up to `day`, exclusive, without date filters."""
        if self.allowed is None:
            return -((self.origin - day * self.units) // self.step)
        if self.cycle == 1:
            return day * self._in_whole_day(0)
        rounds, rest = divmod(day, self.cycle)
        return rounds * len(self.hits()) + bisect_left(self.hits(), rest)

    def _in_whole_day(self, day: int) -> int:
        phase = (self.origin - day * self.units) % self.step
        if phase >= self.units:
            return 0
        if self.step > self.units:
            return self._count_units(phase, self.units)
        count = self._counts.get(phase)
        if count is None:
            count = self._counts[phase] = self._count_units(phase, self.units)
        return count

    @property
    def cycle(self) -> int:
        """Return the number of days after which the steps repeat on the same units of the day."""
        return self.step // gcd(self.step, self.units)

    def hits(self) -> "array[int]":
        """Return the sorted days of the cycle on which the steps reach an allowed unit."""
        if self._hits is None:
            self._hits = _hits(self.step, self.units, self.origin, self.allowed)
        return self._hits

    def _meets(self) -> bool:
        """Return whether the steps reach an allowed unit on a matching weekday."""
        hits, weekdays = self.hits(), {weekday for _, weekday in self.byday}
        if not weekdays or self.cycle % WEEK:  # otherwise each hit is always on the same weekday
            return len(hits) > 0
        return any((hit - 1) % WEEK in weekdays for hit in hits)

    def _next_hit(self, day: int) -> int:
        """Return the first day from `day` on with a step on an allowed unit."""
        hits, cycle = self.hits(), self.cycle
        today = day % cycle
        index = bisect_left(hits, today)
        return day - today + (hits[index] if index < len(hits) else cycle + hits[0])


@lru_cache(maxsize=32)  # up to 0.7 MB each; every run of the job needs it
def _hits(step: int, units: int, origin: int, allowed: bytes | None) -> "array[int]":
    common = gcd(step, units)
    around, cycle = units // common, step // common
    inverse = pow(step // common, -1, around)
    reached = range(origin % common, units, common)
    units_reached = reached if allowed is None else compress(reached, allowed[reached.start :: common])
    turns = ((unit - origin) // common * inverse % around for unit in units_reached)
    return array("q", sorted((origin + turn * step) // units % cycle for turn in turns))
