"""Matching days of a year as bit masks: one bit per day, so that date filters are combined by AND.

Days are proleptic Gregorian ordinals (`date.toordinal`); wall times and instants are seconds since ordinal 0.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import cache, lru_cache
from typing import Protocol

DAY = 86_400
WEEK = 7
LAST_YEAR = 9999
LAST_DAY = date(LAST_YEAR, 12, 31).toordinal()
END_OF_TIME = (LAST_DAY + 1) * DAY  # the first second after the range of datetime
MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
MAX_YEARS = 1_500  # searched for a day; the calendar repeats after 400 years
_MONDAYS = sum(1 << day for day in range(0, 400, WEEK))
_MIDWEEK = 3  # the fourth day of a week determines the year of the week


@cache  # at most ten thousand years
def january_first(year: int) -> int:
    """Return the ordinal of 1 January, also for the year 10000, which has no `date`."""
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400 + 1


def year_of(day: int) -> int:
    """Return the year that contains `day`."""
    return date.fromordinal(day).year


def year_length(year: int) -> int:
    """Return 365 or 366."""
    return january_first(year + 1) - january_first(year)


@cache
def year_kind(year: int) -> tuple[int, int]:
    """Return the weekday of 1 January (Monday is 0) and the year's length: such years have the same days."""
    return (january_first(year) - 1) % WEEK, year_length(year)


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@cache
def months(length: int) -> tuple[tuple[int, int], ...]:
    """Return (first day, number of days) of each month of a year of that length, counted from 0."""
    spans, start = [], 0
    for number, days in enumerate(MONTH_LENGTHS, 1):
        size = days + (number == 2 and length == 366)  # noqa: PLR2004 - February of a leap year
        spans.append((start, size))
        start += size
    return tuple(spans)


def month_mask(length: int, chosen: tuple[int, ...]) -> int:
    """Return the days of the chosen months (1 to 12)."""
    mask = 0
    for number in chosen:
        start, size = months(length)[number - 1]
        mask |= ((1 << size) - 1) << start
    return mask


@lru_cache(maxsize=1024)
def monthday_mask(length: int, chosen: tuple[int, ...]) -> int:
    """Return the days whose number in their month is chosen; -1 is the last."""
    mask = 0
    for start, size in months(length):
        for number in chosen:
            index = number - 1 if number > 0 else size + number
            if 0 <= index < size:
                mask |= 1 << (start + index)
    return mask


def yearday_mask(length: int, chosen: tuple[int, ...]) -> int:
    """Return the days whose number in the year is chosen; -1 is the last."""
    mask = 0
    for number in chosen:
        index = number - 1 if number > 0 else length + number
        if 0 <= index < length:
            mask |= 1 << index
    return mask


def weekday_mask(first: int, chosen: Iterable[int]) -> int:
    """Return the days on a chosen weekday (Monday is 0) if 1 January is on `first`."""
    mask = 0
    for weekday in chosen:
        mask |= _MONDAYS << ((weekday - first) % WEEK)
    return mask


def nth_weekday(first: int, start: int, size: int, nth: int, weekday: int) -> int:
    """Return a mask with the nth given weekday of the `size` days from `start`; 0 if there is none."""
    offset = (weekday - first - start) % WEEK
    index = offset + (nth - 1) * WEEK if nth > 0 else offset + ((size - 1 - offset) // WEEK + 1 + nth) * WEEK
    return 1 << (start + index) if 0 <= index < size else 0


def weekno_mask(year: int, first: int, wkst: int, chosen: tuple[int, ...]) -> int:
    """Return the days of `year` in weeks with a chosen number, including weeks numbered in a neighbouring year.

    29 December 1997 is in week 1 of 1998: it is a day of 1997 in week 1.
    """
    length = year_length(year)
    mask = 0
    for start in range(-((first - wkst) % WEEK), length, WEEK):
        middle, size = start + _MIDWEEK, length
        if middle < 0:
            size = year_length(year - 1)
            middle += size
        elif middle >= length:
            middle -= length
            size = year_length(year + 1)
        number = middle // WEEK + 1
        weeks = (size - 1 - middle % WEEK) // WEEK + 1
        if number in chosen or number - weeks - 1 in chosen:
            mask |= 127 << start if start >= 0 else 127 >> -start
    return mask & ((1 << length) - 1)


@lru_cache(maxsize=256)
def comb(step: int, width: int = 1) -> int:
    """Return a mask of runs of `width` days, one every `step` days, long enough for any year and phase."""
    return sum(((1 << width) - 1) << start for start in range(0, 366 + width, step))


class DaySet(Protocol):
    """A set of days, as one mask per year."""

    def mask(self, year: int) -> int:
        """Return the matching days of `year`: bit 0 is 1 January."""


def next_day(days: DaySet, day: int, last: int) -> int | None:
    """Return the first matching day from `day` to `last`, or None."""
    if day > last:
        return None
    year = date.fromordinal(day).year
    rest = days.mask(year) >> (day - january_first(year))
    if not rest:
        following_year = _next_year(days, year + 1, year_of(min(last, LAST_DAY)))
        if following_year is None:
            return None
        rest, day = days.mask(following_year), january_first(following_year)
    day += (rest & -rest).bit_length() - 1
    return day if day <= last else None


def _next_year(days: DaySet, year: int, final: int) -> int | None:
    """Return the first year from `year` to `final` that has a matching day, or None.

    The search ends after MAX_YEARS years. Without an INTERVAL, days repeat after 400 years, so that it misses
    nothing. With one, it skips years without a period.
    """
    skip: Callable[[int], int] | None = getattr(days, "year_from", None)
    for _ in range(MAX_YEARS):
        if skip is not None:
            year = skip(year)
        if year > final:
            return None
        if days.mask(year):
            return year
        year += 1
    return None


def has_day(days: DaySet, day: int) -> bool:
    """Return whether `day` matches."""
    year = year_of(day)
    return bool(days.mask(year) >> (day - january_first(year)) & 1)


def day_bits(days: DaySet, first: int, end: int) -> int:
    """Return the matching days from `first` up to `end`, exclusive as a mask that starts at `first`."""
    result = 0
    for year in range(year_of(first), year_of(min(end - 1, LAST_DAY)) + 1):
        shift = january_first(year) - first
        mask = days.mask(year)
        result |= mask << shift if shift >= 0 else mask >> -shift
    return result & ((1 << (end - first)) - 1)


def count_days(days: DaySet, first: int, end: int) -> int:
    """Return the number of matching days from `first` up to `end`, exclusive."""
    if end <= first:
        return 0
    total = 0
    for year in range(year_of(first), year_of(min(end - 1, LAST_DAY)) + 1):
        mask, start = days.mask(year), january_first(year)
        if start < first:
            mask >>= first - start
            start = first
        if end - start < 366:  # noqa: PLR2004 - only the last year can be cut short
            mask &= (1 << (end - start)) - 1
        total += mask.bit_count()
    return total
