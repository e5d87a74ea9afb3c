"""Parse one RRULE value strictly by RFC 5545, with an explanation for each error."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from scheduler.domain.recurrence.rfc5545_stamp import Fault, Stamp, read_stamp

_MOST = 2**31 - 1
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_WEEKDAY = re.compile(r"([+-]?[0-9]{1,2})?([A-Z]{2})")
_NUMBER = re.compile(r"[+-]?[0-9]{1,3}")
# The usual forms; others, such as 01MO and +5, take a slower path.
_PLAIN_DAYS = {
    f"{nth or ''}{name}": (nth, day) for nth in range(-53, 54) for day, name in enumerate(_WEEKDAYS)
}
_PLAIN_NUMBERS = {str(number): number for number in range(-366, 367)}
_DIGITS = re.compile(r"[0-9]+")
_WEEKS_IN_YEAR = 53


class Freq(IntEnum):
    """The period of a rule, longest first."""

    YEARLY = 0
    MONTHLY = 1
    WEEKLY = 2
    DAILY = 3
    HOURLY = 4
    MINUTELY = 5
    SECONDLY = 6


# Compared by identity: equal texts share one cached Rule. Immutable by convention; not frozen, for speed.
@dataclass(slots=True, eq=False)
class Rule:
    """A parsed RRULE; an empty tuple is a missing part."""

    freq: Freq = Freq.DAILY
    interval: int = 1
    count: int | None = None
    until: Stamp | None = None
    wkst: int = 0
    bymonth: tuple[int, ...] = ()
    byweekno: tuple[int, ...] = ()
    byyearday: tuple[int, ...] = ()
    bymonthday: tuple[int, ...] = ()
    byday: tuple[tuple[int, int], ...] = ()  # (ordinal, weekday); ordinal 0: every such weekday
    byhour: tuple[int, ...] = ()
    byminute: tuple[int, ...] = ()
    bysecond: tuple[int, ...] = ()
    bysetpos: tuple[int, ...] = ()


def _freq(_name: str, text: str) -> Freq:
    try:
        return Freq[text]
    except KeyError:
        names = ", ".join(freq.name for freq in reversed(Freq))
        raise Fault(f"FREQ={text} is unknown; use one of {names}") from None


def _positive(name: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise Fault(f"{name} must be a whole number of at least 1, not {text}")
    value = int(text) if len(text) <= 10 else _MOST + 1  # noqa: PLR2004 - more digits always exceed the limit
    if value < 1:
        raise Fault(f"{name} must be at least 1")
    if value > _MOST:
        raise Fault(f"{name} must be at most {_MOST}")
    return value


def _numbers(low: int, high: int, *, negative: bool = False) -> Callable[[str, str], tuple[int, ...]]:
    span = f"{low} to {high}" + (f" or -{high} to -{low}" if negative else "")

    def read(name: str, text: str) -> tuple[int, ...]:
        numbers = set()
        for item in text.split(","):
            number = _PLAIN_NUMBERS.get(item)
            if number is None and _NUMBER.fullmatch(item) and (negative or item[0] not in "+-"):
                number = int(item)
            if number is None or not low <= (abs(number) if negative else number) <= high:
                raise Fault(_number_fault(name, item, span))
            numbers.add(number)
        return tuple(sorted(numbers))

    return read


def _number_fault(name: str, item: str, span: str) -> str:
    if not item:
        return f"{name} has an empty item: numbers are separated by single commas"
    if name == "BYSECOND" and item == "60":
        return "BYSECOND=60 is a leap second, which is not supported; use 59"
    return f"{name} takes {span}, not {item}"


def _weekday(name: str, text: str) -> int:
    if text not in _WEEKDAYS:
        raise Fault(f"{name} takes a weekday ({', '.join(_WEEKDAYS)}), not {text}")
    return _WEEKDAYS.index(text)


def _weekdays(name: str, text: str) -> tuple[tuple[int, int], ...]:
    weekdays = set()
    for item in text.split(","):
        if item in _PLAIN_DAYS:
            weekdays.add(_PLAIN_DAYS[item])
            continue
        match = _WEEKDAY.fullmatch(item)
        if not item:
            raise Fault(f"{name} has an empty item: weekdays are separated by single commas")
        if not match or match[2] not in _WEEKDAYS:
            raise Fault(f"{name} takes weekdays such as MO, 1MO or -1FR ({', '.join(_WEEKDAYS)}), not {item}")
        ordinal = int(match[1]) if match[1] else 0
        if match[1] and not 1 <= abs(ordinal) <= _WEEKS_IN_YEAR:
            raise Fault(f"{name}: the number before a weekday is 1 to 53 or -53 to -1, not {match[1]}")
        weekdays.add((ordinal, _WEEKDAYS.index(match[2])))
    return tuple(sorted(weekdays))


_PARTS: dict[str, Callable[[str, str], Any]] = {
    "FREQ": _freq,
    "INTERVAL": _positive,
    "COUNT": _positive,
    "UNTIL": read_stamp,
    "WKST": _weekday,
    "BYMONTH": _numbers(1, 12),
    "BYWEEKNO": _numbers(1, 53, negative=True),
    "BYYEARDAY": _numbers(1, 366, negative=True),
    "BYMONTHDAY": _numbers(1, 31, negative=True),
    "BYDAY": _weekdays,
    "BYHOUR": _numbers(0, 23),
    "BYMINUTE": _numbers(0, 59),
    "BYSECOND": _numbers(0, 59),
    "BYSETPOS": _numbers(1, 366, negative=True),
}
_HINTS = {
    "BYWEEKDAY": "write BYDAY",
    "BYEASTER": "RFC 5545 has no Easter; list the dates with RDATE",
    "DTSTART": "put it on a separate line, or use run_at",
    "TZID": "use the field timezone",
}


def read_rule(text: str, faults: list[str]) -> Rule:
    """Return the rule from `text` (without `RRULE:`); every fault is added to `faults`."""
    values: dict[str, Any] = {}
    before = len(faults)
    text = text.upper()
    # Popular calendars end rules with a semicolon; elsewhere an empty part is an error.
    for part in text.removesuffix(";").split(";"):
        try:
            name, value = _part(part)
            if name in values:
                faults.append(f"{name} is given twice; each part may be given once")
            values[name] = None
            values[name] = _PARTS[name](name, value)
        except Fault as fault:
            faults.append(str(fault))
    if "FREQ" not in text:
        faults.append("FREQ is missing: every rule needs one, such as FREQ=DAILY")
    if len(faults) > before:
        return Rule()
    rule = Rule(**{name.lower(): value for name, value in values.items()})
    faults.extend(_forbidden(rule))
    return rule


def _part(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    if name in _PARTS and value and value == value.strip():
        return name, value
    if not part:
        raise Fault("there is an empty part: parts are separated by single semicolons")
    if name != name.strip() or value != value.strip():
        raise Fault(f"no spaces are allowed in {part.strip()[:40]!r}")
    if name not in _PARTS:
        hint = _HINTS.get(name, f"the parts are {', '.join(_PARTS)}")
        raise Fault(f"{name[:40]} is not a part of a rule; {hint}")
    raise Fault(f"{name} has no value: write {name}=…")


def _forbidden(rule: Rule) -> list[str]:
    """Return the combinations that RFC 5545 forbids."""
    freq, faults = rule.freq, []
    if rule.count is not None and rule.until is not None:
        faults.append("COUNT and UNTIL exclude each other: use only one of them")
    if rule.byweekno and freq != Freq.YEARLY:
        faults.append(f"BYWEEKNO needs FREQ=YEARLY, not {freq.name}")
    if rule.byyearday and freq in (Freq.DAILY, Freq.WEEKLY, Freq.MONTHLY):
        faults.append(f"BYYEARDAY cannot be used with FREQ={freq.name}; use FREQ=YEARLY")
    if rule.bymonthday and freq == Freq.WEEKLY:
        faults.append("BYMONTHDAY cannot be used with FREQ=WEEKLY; use FREQ=MONTHLY")
    if any(ordinal for ordinal, _ in rule.byday):
        if freq not in (Freq.MONTHLY, Freq.YEARLY):
            faults.append(f"BYDAY with a number needs FREQ=MONTHLY or FREQ=YEARLY, not {freq.name}")
        elif rule.byweekno:
            faults.append("BYDAY with a number cannot be used with BYWEEKNO: a week has each weekday once")
    if rule.bysetpos and not any(_filters(rule)):
        faults.append("BYSETPOS needs another BY part, such as BYDAY, to choose from")
    return faults


def _filters(rule: Rule) -> tuple[tuple[object, ...], ...]:
    dates = (rule.bymonth, rule.byweekno, rule.byyearday, rule.bymonthday, rule.byday)
    return (*dates, rule.byhour, rule.byminute, rule.bysecond)


def weekday_name(weekday: int) -> str:
    """Return the RFC 5545 abbreviation of a weekday."""
    return _WEEKDAYS[weekday]
