"""Parse cron expressions by Debian's rules: five fields, names, steps, and L, LW, 5L and 5#2."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from scheduler.domain.recurrence.day_masks import (
    WEEK,
    month_mask,
    monthday_mask,
    months,
    nth_weekday,
    weekday_mask,
    year_kind,
)
from scheduler.domain.recurrence.rfc5545_stamp import Fault
from scheduler.domain.recurrence.rrule_text import Faults, SyntaxFaults
from scheduler.domain.recurrence.times_of_day import clock_times
from scheduler.domain.recurrence.wall_times import DaysAndTimes

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_TERM = re.compile(r"(?:(\*)|([0-9]{1,2}|[A-Z]{3})(?:-([0-9]{1,2}|[A-Z]{3}))?)(?:/([0-9]{1,9}))?")
_NTH = re.compile(r"([0-7]|[A-Z]{3})#([1-5])")
_LAST = re.compile(r"([0-7])L")
LONGEST = 1024
_ORDER = ("minute", "hour", "day of month", "month", "day of week")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        """Return the value of a number or a name."""
        if text in self.names:
            return self.names.index(text) + self.low
        if not text.isdigit() or not self.low <= int(text) <= self.high:
            names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
            raise Fault(f"{self.name} takes {self.low} to {self.high}{names}, not {text}")
        return int(text)

    def term(self, text: str) -> set[int]:
        """Return the numbers of one list item: a number, a range or a star, with an optional step."""
        match = _TERM.fullmatch(text)
        if not match:
            raise Fault(f"{self.name}: {text[:40]!r} is not a number, a range such as 1-5, or a step such as */15")
        star, first, last, step = match.groups()
        if step is not None and int(step) == 0:
            raise Fault(f"{self.name}: the step in {text} must be at least 1")
        low = self.low if star else self.number(first)
        high = self.number(last) if last else self.high if star or step else low
        if high < low:
            raise Fault(f"{self.name}: the range {text} runs backwards")
        return set(range(low, high + 1, int(step or 1)))

    def read(self, text: str, faults: list[str]) -> tuple[int, ...]:
        """Return the sorted numbers of the whole field; errors are added to `faults`."""
        numbers: set[int] = set()
        for item in text.split(","):
            try:
                numbers |= self.term(item)
            except Fault as fault:
                faults.append(str(fault))
        return tuple(sorted(numbers))


_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_MONTHDAY = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, _MONTHS)
_WEEKDAY = _Field("day of week", 0, 7, _WEEKDAYS)


@dataclass(slots=True)
class CronDays:
    """The days that a cron expression's last three fields allow."""

    months: tuple[int, ...]
    monthdays: tuple[int, ...]  # -1: the last day (L)
    last_workday: bool  # LW
    weekdays: tuple[int, ...]  # Monday is 0
    ordinals: tuple[tuple[int, int], ...]  # (nth, weekday); -1: the last (5L)
    both: bool  # Debian: AND when either field starts with a star, otherwise OR
    _masks: dict[tuple[int, int], int] = field(default_factory=dict)

    def mask(self, year: int) -> int:
        """Return the matching days of `year`: bit 0 is 1 January."""
        kind = year_kind(year)
        if kind not in self._masks:
            self._masks[kind] = self._mask(*kind)
        return self._masks[kind]

    def _mask(self, first: int, length: int) -> int:
        by_number = monthday_mask(length, self.monthdays)
        by_weekday = weekday_mask(first, self.weekdays)
        for start, size in months(length):
            if self.last_workday:
                weekday = (first + start + size - 1) % WEEK
                by_number |= 1 << (start + size - 1 - max(0, weekday - 4))
            for nth, weekday in self.ordinals:
                by_weekday |= nth_weekday(first, start, size, nth, weekday)
        days = by_number & by_weekday if self.both else by_number | by_weekday
        return days & month_mask(length, self.months)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression: its wall times, and whether they are fixed times or wildcards."""

    walls: DaysAndTimes
    fixed: bool
    key: tuple[Any, ...]  # equal for equivalent expressions


@lru_cache(maxsize=1024)  # a few kB each
def read_cron(text: str) -> Cron:
    """Return the parsed expression. Raises Faulty with every fault."""
    minute, hour, monthday, month, weekday = _fields(text)
    faults = Faults()
    minutes, hours = _MINUTE.read(minute, faults), _HOUR.read(hour, faults)
    monthdays, last_workday = _monthdays(monthday, faults)
    weekdays, ordinals = _weekdays(weekday, faults)
    chosen = _MONTH.read(month, faults)
    if faults:
        raise SyntaxFaults(tuple(faults))
    both = monthday.startswith("*") or weekday.startswith("*")
    days = CronDays(chosen, monthdays, last_workday, weekdays, ordinals, both)
    fixed = not (minute.startswith("*") or hour.startswith("*"))
    key = (minutes, hours, chosen, frozenset(monthdays), last_workday, weekdays, frozenset(ordinals), both, fixed)
    return Cron(DaysAndTimes(days, clock_times(hours, minutes, (0,))), fixed, key)


def _fields(text: str) -> list[str]:
    if len(text) > LONGEST:
        raise SyntaxFaults((f"at most {LONGEST} characters, not {len(text)}",))
    macro = text.strip().lower()
    if macro == "@reboot":
        raise SyntaxFaults(("@reboot is not supported: a job runs at times, not at the start of a machine",))
    if macro.startswith("@") and macro not in _MACROS:
        raise SyntaxFaults((f"{macro[:40]!r} is unknown; the short forms are {', '.join(_MACROS)}",))
    fields = _MACROS.get(macro, text).upper().split()
    if len(fields) != len(_ORDER):
        hint = "; seconds are not part of cron" if len(fields) == len(_ORDER) + 1 else ""
        raise SyntaxFaults((f"cron has 5 fields ({', '.join(_ORDER)}), not {len(fields)}{hint}",))
    return fields


def _monthdays(text: str, faults: list[str]) -> tuple[tuple[int, ...], bool]:
    items = text.split(",")
    plain = [item for item in items if item not in ("L", "LW")]
    days = _MONTHDAY.read(",".join(plain), faults) if plain else ()
    return ((-1, *days) if "L" in items else days), "LW" in items


def _weekdays(text: str, faults: list[str]) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    plain, ordinals = [], []
    for item in text.split(","):
        nth, last = _NTH.fullmatch(item), _LAST.fullmatch(item)
        if last:
            ordinals.append((-1, _monday_first(int(last[1]))))
        elif nth and (nth[1].isdigit() or nth[1] in _WEEKDAYS):
            ordinals.append((int(nth[2]), _monday_first(_WEEKDAY.number(nth[1]))))
        else:
            plain.append(item)
    days = _WEEKDAY.read(",".join(plain), faults) if plain else ()
    return tuple(sorted({_monday_first(day) for day in days})), tuple(ordinals)


def _monday_first(weekday: int) -> int:
    return (weekday - 1) % WEEK
