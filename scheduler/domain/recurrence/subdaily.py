"""Rules by the hour, minute or second: steps from DTSTART, laid over the units of a day that are allowed."""

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
_LISTED = 4_096  # days of a cycle that are worth a list
_LONGEST_YEAR = 366
_RARE = 8  # days between two steps
_AS_FLAGS = bytes.maketrans(b"01", b"\x00\x01")
# A search gives up after so many days without a member. Once it knows on which days the steps reach an allowed
# unit, no rule has so many in 100 years.
MOST_STEPS = 2_000
_STUBBORN = 16  # days without a hit before it pays to work out where the hits are


@dataclass(slots=True)
class Steps:
    """Every `step` units from `origin`, on matching days and in allowed units, at given offsets in a unit."""

    days: DaySet
    every_day: bool
    unit: int  # seconds: 3600, 60 or 1
    step: int  # units
    origin: int  # the unit, counted from ordinal 0, that DTSTART lies in
    allowed: bytes | None  # one byte a unit of the day, 1 where allowed; None: all of them
    offsets: tuple[int, ...]  # seconds within a unit, in order, BYSETPOS applied; never empty
    byday: tuple[tuple[int, int], ...] = ()  # of the rule; `days` keep to these weekdays
    _counts: dict[int, int] = field(default_factory=dict)
    _years: dict[tuple[int, ...], int] = field(default_factory=dict)
    _by_day: list[int] | None = None  # units that match on each day of the cycle, date filters aside
    _hits: "array[int] | None" = None  # not subscriptable before Python 3.12

    @property
    def units(self) -> int:
        """Return the number of units in a day."""
        return DAY // self.unit

    @property
    def slow_to_count(self) -> bool:
        """Say whether counting looks at each day: neither a short cycle nor few steps make it faster."""
        dense = self.allowed is not None and self.allowed.count(_YES) > _LISTED
        return self.cycle > _LISTED and self.step <= _RARE * self.units and (dense or not self.every_day)

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        if wall > last:
            return None
        units, final = self.units, min(last // DAY, LAST_DAY)
        day, second = divmod(wall, DAY)
        known = False  # that the steps reach an allowed unit
        for attempt in range(MOST_STEPS):
            matching = next_day(self.days, day, final) if not self.every_day else day if day <= final else None
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
            if attempt > _STUBBORN:
                if not known and not self._meets():
                    return None
                known = True
                day = self._next_hit(day)
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
        return total + self._whole_days(low, high) * len(self.offsets)

    def flags(self, first: int, end: int) -> bytes:
        """Return one byte for each second from `first` up to, not including, `end`: 1 for a member."""
        row = bytearray(end - first)
        for day in range(first // DAY, min((end - 1) // DAY, LAST_DAY) + 1):
            if day_bits(self.days, day, day + 1):
                base, phase = day * DAY - first, (self.origin - day * self.units) % self.step
                for offset in self.offsets:
                    self._mark(row, base + offset, phase)
        return bytes(row)

    def _mark(self, row: bytearray, base: int, phase: int) -> None:
        """Set the units of one day in `row`, where unit 0 would stand at `base`, perhaps outside."""
        low = max(phase, -(base // self.unit))
        low += (phase - low) % self.step
        high = min(self.units, -((base - len(row)) // self.unit))
        if low < high:
            places = slice(base + low * self.unit, base + (high - 1) * self.unit + 1, self.step * self.unit)
            units = range(low, high, self.step)
            row[places] = self.allowed[low : high : self.step] if self.allowed else _YES * len(units)

    def _before(self, wall: int) -> int:
        """Return how many members the day of `wall` has before it."""
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
        """Return how many units match on the days from `low` up to, not including, `high`."""
        if self.every_day and not self.slow_to_count:
            return self._units_before(high) - self._units_before(low)
        total = 0
        for year in range(year_of(low), year_of(min(high, LAST_DAY)) + 1) if low < high else ():
            start, end = january_first(year), january_first(year + 1)
            if start < low or high < end:
                total += self._on_days(max(start, low), min(end, high))
                continue
            # Years that are alike, and begin at the same point between two steps, have equally many.
            key = (*year_kind(year), (self.origin - start * self.units) % self.step)
            known = self._years.get(key)
            if known is None:
                known = self._years[key] = self._on_days(start, end)
            total += known
        return total

    def _on_days(self, start: int, end: int) -> int:
        """Return how many units match on the days from `start` up to, not including, `end` of one year."""
        mask = day_bits(self.days, start, end) if start < end else 0
        cycle = self.cycle
        if cycle == 1:
            return mask.bit_count() * self._in_whole_day(start)
        if cycle > _LISTED:
            if self.step > self.units:
                return self._count_steps(mask, start, end)
            return sum(self._in_whole_day(start + bit) for bit in bits(mask))
        if self._by_day is None:
            # A year longer than the cycle, so that a year can begin anywhere in it.
            row = [self._in_whole_day(day) for day in range(cycle)]
            self._by_day = row * ((cycle + _LONGEST_YEAR) // cycle + 1)
        chosen = f"{mask:b}"[::-1].encode().translate(_AS_FLAGS)
        first = start % cycle
        return sum(compress(self._by_day[first : first + len(chosen)], chosen))

    def _count_steps(self, mask: int, start: int, end: int) -> int:
        """Return how many steps match on the days of `mask`, which begins at `start`: fewer than one a day."""
        units, allowed, total = self.units, self.allowed, 0
        low, high = start * units, end * units
        for unit in range(low + (self.origin - low) % self.step, high, self.step):
            day, index = divmod(unit - low, units)
            total += mask >> day & 1 and (allowed is None or allowed[index])
        return total

    def _units_before(self, day: int) -> int:
        """Return how many units match from some far day up to, not including, `day`, date filters aside."""
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
        known = self._counts.get(phase)
        if known is None:
            known = self._counts[phase] = self._count_units(phase, self.units)
        return known

    @property
    def cycle(self) -> int:
        """Return after how many days the steps fall on the same units of the day again."""
        return self.step // gcd(self.step, self.units)

    def hits(self) -> "array[int]":
        """Return for each allowed unit that the steps reach on which day of the cycle they do, in order."""
        if self._hits is None:
            self._hits = _hits(self.step, self.units, self.origin, self.allowed)
        return self._hits

    def _meets(self) -> bool:
        """Say whether the steps reach an allowed unit at all, and on a weekday that matches."""
        hits, weekdays = self.hits(), {weekday for _, weekday in self.byday}
        if not weekdays or self.cycle % WEEK:  # otherwise each hit keeps to its weekday
            return len(hits) > 0
        return any((hit - 1) % WEEK in weekdays for hit in hits)

    def _next_hit(self, day: int) -> int:
        """Return the first day from `day` on which a step reaches an allowed unit."""
        hits, cycle = self.hits(), self.cycle
        today = day % cycle
        index = bisect_left(hits, today)
        return day - today + (hits[index] if index < len(hits) else cycle + hits[0])


@lru_cache(maxsize=32)  # up to 0.7 MB each; the same job asks again when it runs
def _hits(step: int, units: int, origin: int, allowed: bytes | None) -> "array[int]":
    common = gcd(step, units)
    around, cycle = units // common, step // common
    inverse = pow(step // common, -1, around)
    reached = range(origin % common, units, common)
    units_reached = reached if allowed is None else compress(reached, allowed[reached.start :: common])
    turns = ((unit - origin) // common * inverse % around for unit in units_reached)
    return array("q", sorted((origin + turn * step) // units % cycle for turn in turns))
