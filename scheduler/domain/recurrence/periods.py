"""Days of daily and longer rules: INTERVAL, and BYSETPOS within a period."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

from scheduler.domain.recurrence.day_masks import (
    DAY,
    LAST_DAY,
    LAST_YEAR,
    WEEK,
    DaySet,
    comb,
    day_bits,
    january_first,
    month_mask,
    monthday_mask,
    months,
    next_day,
    nth_weekday,
    weekday_mask,
    weekno_mask,
    year_kind,
    year_length,
    year_of,
    yearday_mask,
)
from scheduler.domain.recurrence.rule import Freq, Rule
from scheduler.domain.recurrence.times_of_day import Times, pick

_EVERY_MONTH = tuple(range(1, 13))
_EMPTY_PERIODS = 4  # periods without a member before checking whether any can have one
# A search ends after this number of periods without a member. No rule has that many in 100 years: the month with
# the most days repeats within 40 years, and weeks within a month are all the same.
MAX_PERIODS = 1_200
# One year per weekday of 1 January, length, and lengths of the years around it.
_KINDS_OF_YEARS = tuple({
    (*year_kind(year), year_length(year - 1), year_length(year + 1)): year for year in range(2000, 2400)
}.values())


@dataclass(slots=True, eq=False)
class RuleDays:
    """The days that all date filters of a rule allow, without its INTERVAL."""

    rule: Rule
    _masks: dict[tuple[int, ...], int] = field(default_factory=dict)

    def mask(self, year: int) -> int:
        """Return the matching days of `year`: bit 0 is 1 January."""
        kind: tuple[int, ...] = year_kind(year)
        if self.rule.byweekno:
            kind = (*kind, year_length(year - 1), year_length(year + 1))
        mask = self._masks.get(kind)
        if mask is None:
            mask = self._masks[kind] = self._mask(year, kind[0], kind[1])
        return mask

    def _mask(self, year: int, first: int, length: int) -> int:
        rule = self.rule
        mask = (1 << length) - 1
        if rule.bymonth:
            mask &= month_mask(length, rule.bymonth)
        if rule.byweekno:
            mask &= weekno_mask(year, first, rule.wkst, rule.byweekno)
        if rule.byyearday:
            mask &= yearday_mask(length, rule.byyearday)
        if rule.bymonthday:
            mask &= monthday_mask(length, rule.bymonthday)
        if rule.byday:
            mask &= self._weekdays(first, length)
        return mask

    def _weekdays(self, first: int, length: int) -> int:
        """Return the days that any item of BYDAY allows: `MO,1TU` is every Monday and the first Tuesday."""
        rule = self.rule
        mask = weekday_mask(first, [weekday for nth, weekday in rule.byday if not nth])
        if rule.byday[0][0] == rule.byday[-1][0] == 0:  # sorted: all ordinals are 0
            return mask
        if rule.freq == Freq.YEARLY and not rule.bymonth:
            spans: tuple[tuple[int, int], ...] = ((0, length),)
        else:
            spans = tuple(months(length)[month - 1] for month in rule.bymonth or _EVERY_MONTH)
        for nth, weekday in rule.byday:
            if nth:
                for start, size in spans:
                    mask |= nth_weekday(first, start, size, nth, weekday)
        return mask


@dataclass(slots=True)
class AlignedDays:
    """The days of a rule in the periods that its INTERVAL selects from DTSTART."""

    days: DaySet
    rule: Rule
    anchor: date

    def mask(self, year: int) -> int:
        """Return the matching days of `year`: bit 0 is 1 January."""
        rule, step = self.rule, self.rule.interval
        if rule.freq == Freq.YEARLY:
            return 0 if (year - self.anchor.year) % step else self.days.mask(year)
        mask = self.days.mask(year)
        if not mask:
            return 0
        if rule.freq == Freq.MONTHLY:
            behind = (year - self.anchor.year) * 12 - self.anchor.month
            chosen = tuple(month for month in _EVERY_MONTH if (behind + month) % step == 0)
            return mask & month_mask(year_length(year), chosen)
        width = WEEK if rule.freq == Freq.WEEKLY else 1
        origin = self.anchor.toordinal()
        if width == WEEK:
            origin -= (self.anchor.weekday() - rule.wkst) % WEEK
        period = step * width
        phase = (origin - january_first(year)) % period
        teeth = 0
        if phase < mask.bit_length():
            teeth = comb(period, width) << phase
        if period - phase < width:  # a week that started in December
            teeth |= comb(period, width) >> (period - phase)
        return mask & teeth

    def year_from(self, year: int) -> int:
        """Return the first year from `year` on with a day in a period; 10000 if there is none before."""
        freq, step, anchor = self.rule.freq, self.rule.interval, self.anchor
        if freq == Freq.YEARLY:
            following = year + (anchor.year - year) % step
        elif freq == Freq.MONTHLY:
            before = year * 12 - (anchor.year * 12 + anchor.month - 1)
            following = (year * 12 + -before % step) // 12
        else:
            width = WEEK if freq == Freq.WEEKLY else 1
            origin = anchor.toordinal() - (anchor.weekday() - self.rule.wkst) % WEEK * (width == WEEK)
            start = january_first(year) - width + 1  # include a week that started in December
            day = start + (origin - start) % (step * width)
            following = year if day <= january_first(year) else LAST_YEAR + 1 if day > LAST_DAY else year_of(day)
        return min(following, LAST_YEAR + 1)


def aligned_days(days: DaySet, rule: Rule, day: int) -> DaySet:
    """Return the days of `rule`, with INTERVAL counted from DTSTART's `day`."""
    return days if rule.interval == 1 else AlignedDays(days, rule, date.fromordinal(day))


@dataclass(slots=True)
class Positions:
    """BYSETPOS of a weekly, monthly or yearly rule: chosen members of each period."""

    days: DaySet
    times: Times
    rule: Rule
    anchor: date
    whole: RuleDays  # without INTERVAL, which selects whole periods
    _recent: tuple[int, list[int]] | None = None
    _counts: dict[tuple[int, ...], int] = field(default_factory=dict)
    _picked: dict[int, int] = field(default_factory=dict)  # by number of matching days in a period

    def _chooses_nothing(self) -> bool:
        """Return whether no period can have as many members as BYSETPOS requires."""
        rule, fewest = self.whole.rule, min(map(abs, self.rule.bysetpos))
        most = {Freq.WEEKLY: len(rule.byday) or WEEK, Freq.MONTHLY: 31, Freq.YEARLY: 366}[rule.freq]
        if most * self.times.size >= fewest and rule.freq != Freq.WEEKLY:
            most = max(map(self._most_in_period, _KINDS_OF_YEARS))
        return most * self.times.size < fewest

    def _most_in_period(self, year: int) -> int:
        """Return the largest number of matching days in a month of `year`, or in the year itself."""
        mask = self.whole.mask(year)
        if self.rule.freq == Freq.YEARLY:
            return mask.bit_count()
        return max((mask >> start & (1 << size) - 1).bit_count() for start, size in months(year_length(year)))

    def _count_days(self, start: int, end: int) -> int:
        """Return the number of matching days from `start` up to `end`, exclusive."""
        first = max(start, 1)
        return day_bits(self.whole, first, min(end, LAST_DAY + 1)).bit_count()

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        final = min(last // DAY, LAST_DAY)
        matching = next_day(self.days, min(wall // DAY, LAST_DAY), final)
        fewest = 0  # members that a period must have for any to be chosen
        for attempt in range(MAX_PERIODS):
            if matching is None or (attempt == _EMPTY_PERIODS and self._chooses_nothing()):
                return None
            first, end = self._period(matching)
            # The first period is probably cached; don't list a later one that has too few members.
            if attempt == 1:
                fewest = min(map(abs, self.rule.bysetpos))
            if not attempt or self._count_days(first, end) * self.times.size >= fewest:
                for member in self._chosen(first, end):
                    if member >= wall:
                        return member if member <= last else None
            matching = next_day(self.days, end, final)
        return None

    def count(self, first: int, end: int) -> int:
        """Return the number of members from `first` to `end`, exclusive."""
        if first >= end:
            return 0
        total = 0
        start = max(self._period(min(first // DAY, LAST_DAY))[0], 1)
        for year in range(year_of(start), year_of(min((end - 1) // DAY, LAST_DAY)) + 1):
            if first <= january_first(year) * DAY and (january_first(year + 1) + WEEK) * DAY <= end:
                total += self._in_year(year)
            else:
                total += sum(first <= wall < end for wall in self._starting_in(year))
        return total

    def _in_year(self, year: int) -> int:
        """Return the number of members in periods that start in `year`, cached by kind of year."""
        rule, step = self.rule, self.rule.interval
        if rule.freq == Freq.WEEKLY:
            phase = (self._period(self.anchor.toordinal())[0] - january_first(year)) % (step * WEEK)
        elif rule.freq == Freq.MONTHLY:
            phase = (self.anchor.month - (year - self.anchor.year) * 12) % step
        else:
            phase = (year - self.anchor.year) % step
        key = (*year_kind(year), year_length(year - 1), year_length(year + 1), phase)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = self._count_starting_in(year)
        return count

    def _count_starting_in(self, year: int) -> int:
        """Return the number of members in periods that start in `year`, without listing them."""
        if self.rule.freq == Freq.WEEKLY and not self.rule.bymonth and 1 < year < LAST_YEAR:
            period = self.rule.interval * WEEK
            first = (self._period(self.anchor.toordinal())[0] - january_first(year)) % period
            return len(range(first, year_length(year), period)) * self._count_picked(len(self.whole.rule.byday))
        return sum(
            self._count_picked(self._count_days(start, end)) for start, end in self._periods_starting_in(year)
        )

    def _count_picked(self, days: int) -> int:
        """Return the number of chosen members in a period with `days` matching days."""
        if days not in self._picked:
            self._picked[days] = len(pick(self.rule.bysetpos, days * self.times.size))
        return self._picked[days]

    def _starting_in(self, year: int) -> Iterator[int]:
        """Yield the members of the periods that start in `year`, in order."""
        for start, end in self._periods_starting_in(year):
            yield from self._chosen(start, end)

    def _periods_starting_in(self, year: int) -> Iterator[tuple[int, int]]:
        """Yield the first day and the end of each period with a matching day that starts in `year`."""
        day, last = january_first(year), january_first(year + 1) - 1
        start, end = self._period(day)
        if start < day:
            day = end if start > 0 else 1
        while (matching := next_day(self.days, day, min(last + WEEK, LAST_DAY))) is not None:
            start, day = self._period(matching)
            if start > last:
                return
            yield start, day

    def flags(self, first: int, end: int) -> bytes:
        """Return one byte per second from `first` to `end`, exclusive: 1 for a member."""
        row = bytearray(end - first)
        wall = self.next_from(first, end - 1)
        while wall is not None:
            row[wall - first] = 1
            wall = self.next_from(wall + 1, end - 1)
        return bytes(row)

    def _period(self, day: int) -> tuple[int, int]:
        """Return the first day and the end of the period that contains `day`."""
        if self.rule.freq == Freq.WEEKLY:
            start = day - (day - 1 - self.rule.wkst) % WEEK
            return start, start + WEEK
        when = date.fromordinal(day)
        start = january_first(when.year)
        if self.rule.freq == Freq.YEARLY:
            return start, january_first(when.year + 1)
        offset, size = months(year_length(when.year))[when.month - 1]
        return start + offset, start + offset + size

    def _chosen(self, start: int, end: int) -> list[int]:
        """Return the chosen members of one period, in order."""
        if self._recent is not None and self._recent[0] == start:
            return self._recent[1]
        first = max(start, 1)
        members = _members(self.whole, first, min(end, LAST_DAY + 1))
        size = self.times.size
        indexes = pick(self.rule.bysetpos, len(members) * size)
        chosen = [members[i // size] * DAY + self.times.at(i % size) for i in indexes]
        self._recent = start, chosen
        return chosen


@lru_cache(maxsize=4096)  # up to 15 kB each
def _members(days: RuleDays, first: int, end: int) -> tuple[int, ...]:
    """Return the matching days of one period; jobs with the same rule need the same few periods."""
    binary = f"{day_bits(days, first, end):b}"
    return tuple([day for day, bit in enumerate(reversed(binary), first) if bit == "1"])
