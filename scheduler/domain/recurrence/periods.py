"""Rules by the day or longer: which days their INTERVAL reaches, and BYSETPOS within a period."""

from dataclasses import dataclass, field
from datetime import date

from scheduler.domain.recurrence.calendar import (
    DAY,
    LAST_DAY,
    WEEK,
    Days,
    bits,
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
    yearday_mask,
)
from scheduler.domain.recurrence.rule import Freq, Rule
from scheduler.domain.recurrence.times import Times, pick
from scheduler.domain.recurrence.walls import PATIENCE

_EVERY_MONTH = tuple(range(1, 13))


@dataclass(slots=True)
class RuleDays:
    """The days that every date filter of a rule allows, whatever its INTERVAL."""

    rule: Rule
    _known: dict[tuple[int, ...], int] = field(default_factory=dict)

    def mask(self, year: int) -> int:
        """Return the matching days of `year`: bit 0 is 1 January."""
        kind: tuple[int, ...] = year_kind(year)
        if self.rule.byweekno:
            kind = (*kind, year_length(year - 1), year_length(year + 1))
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._mask(year, kind[0], kind[1])
        return known

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
        mask = weekday_mask(first, tuple(weekday for nth, weekday in rule.byday if not nth))
        if rule.freq == Freq.YEARLY and not rule.bymonth:
            spans: tuple[tuple[int, int], ...] = ((0, length),)
        else:
            spans = tuple(months(length)[month - 1] for month in rule.bymonth or _EVERY_MONTH)
        for nth, weekday in rule.byday:
            if nth:
                for start, size in spans:
                    mask |= nth_weekday(first, start, size, nth, weekday)
        return mask


@dataclass(frozen=True, slots=True)
class AlignedDays:
    """The days of a rule that lie in the periods its INTERVAL reaches from DTSTART."""

    days: Days
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
        if period - phase < width:  # a week that began in December
            teeth |= comb(period, width) >> (period - phase)
        return mask & teeth


def aligned_days(days: Days, rule: Rule, anchor: date) -> Days:
    """Return the days of `rule` counted from `anchor`."""
    return days if rule.interval == 1 else AlignedDays(days, rule, anchor)


@dataclass(slots=True)
class Positions:
    """BYSETPOS of a weekly, monthly or yearly rule: chosen members of each whole period's set."""

    days: Days
    times: Times
    rule: Rule
    _recent: dict[int, list[int]] = field(default_factory=dict)

    def next_from(self, wall: int, last: int) -> int | None:
        """Return the first member from `wall` to `last`, or None."""
        day = self._period(min(wall // DAY, LAST_DAY))[0]
        for _ in range(PATIENCE):
            matching = next_day(self.days, max(day, 1), last // DAY)
            if matching is None:
                return None
            first, end = self._period(matching)
            for found in self._chosen(first, end):
                if found >= wall:
                    return found if found <= last else None
            day = end
        return None

    def count(self, first: int, end: int) -> int:
        """Return how many members there are from `first` up to, not including, `end`."""
        total, sizes = 0, dict[int, int]()
        day = self._period(first // DAY)[0]
        while (matching := next_day(self.days, max(day, 1), min((end - 1) // DAY, LAST_DAY))) is not None:
            start, day = self._period(matching)
            if start * DAY < first or day * DAY > end:
                total += sum(first <= wall < end for wall in self._chosen(start, day))
                continue
            size = day_bits(self.days, max(start, 1), min(day, LAST_DAY + 1)).bit_count() * self.times.size
            if size not in sizes:
                sizes[size] = len(pick(self.rule.bysetpos, size))
            total += sizes[size]
        return total

    def flags(self, first: int, end: int) -> bytes:
        """Return one byte for each second from `first` up to, not including, `end`: 1 for a member."""
        row = bytearray(end - first)
        wall = self.next_from(first, end - 1)
        while wall is not None:
            row[wall - first] = 1
            wall = self.next_from(wall + 1, end - 1)
        return bytes(row)

    def _period(self, day: int) -> tuple[int, int]:
        """Return the first day of the period that contains `day`, and the first day after it."""
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
        known = self._recent.get(start)
        if known is not None:
            return known
        first = max(start, 1)
        members = list(bits(day_bits(self.days, first, min(end, LAST_DAY + 1))))
        size = self.times.size
        indexes = pick(self.rule.bysetpos, len(members) * size)
        chosen = [(first + members[i // size]) * DAY + self.times.at(i % size) for i in indexes]
        if len(self._recent) > 8:  # noqa: PLR2004 - a search looks at one period, or at the next one too
            self._recent.clear()
        self._recent[start] = chosen
        return chosen
