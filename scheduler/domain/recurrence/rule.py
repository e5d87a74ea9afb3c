"""One RRULE value, read strictly: what RFC 5545 does not allow is refused with a sentence that teaches it."""

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
# How nearly everybody writes them; other ways, such as 01MO and +5, are read with more patience.
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


# Compared by identity: the cached text keeps one Rule for each. Not frozen, for speed, but never changed.
@dataclass(slots=True, eq=False)
class Rule:
    """An RRULE as written; an empty tuple is a part that was not given."""

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
        known = ", ".join(freq.name for freq in reversed(Freq))
        raise Fault(f"FREQ={text} is unknown; it is one of {known}") from None


def _positive(name: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise Fault(f"{name} must be a whole number of at least 1, not {text}")
    value = int(text) if len(text) <= 10 else _MOST + 1  # noqa: PLR2004 - no digits beyond any cap are read
    if value < 1:
        raise Fault(f"{name} must be at least 1")
    if value > _MOST:
        raise Fault(f"{name} must be at most {_MOST}")
    return value


def _numbers(low: int, high: int, *, negative: bool = False) -> Callable[[str, str], tuple[int, ...]]:
    span = f"{low} to {high}" + (f" or -{high} to -{low}" if negative else "")

    def read(name: str, text: str) -> tuple[int, ...]:
        found = set()
        for item in text.split(","):
            number = _PLAIN_NUMBERS.get(item)
            if number is None and _NUMBER.fullmatch(item) and (negative or item[0] not in "+-"):
                number = int(item)
            if number is None or not low <= (abs(number) if negative else number) <= high:
                raise Fault(_number_fault(name, item, span))
            found.add(number)
        return tuple(sorted(found))

    return read


def _number_fault(name: str, item: str, span: str) -> str:
    if not item:
        return f"{name} has an empty item: numbers are separated by single commas"
    if name == "BYSECOND" and item == "60":
        return "BYSECOND=60 is a leap second, which the clocks here do not have; use 59"
    return f"{name} takes {span}, not {item}"


def _weekday(name: str, text: str) -> int:
    if text not in _WEEKDAYS:
        raise Fault(f"{name} takes a weekday ({', '.join(_WEEKDAYS)}), not {text}")
    return _WEEKDAYS.index(text)


def _weekdays(name: str, text: str) -> tuple[tuple[int, int], ...]:
    found = set()
    for item in text.split(","):
        if item in _PLAIN_DAYS:
            found.add(_PLAIN_DAYS[item])
            continue
        match = _WEEKDAY.fullmatch(item)
        if not item:
            raise Fault(f"{name} has an empty item: weekdays are separated by single commas")
        if not match or match[2] not in _WEEKDAYS:
            raise Fault(f"{name} takes weekdays such as MO, 1MO or -1FR ({', '.join(_WEEKDAYS)}), not {item}")
        ordinal = int(match[1]) if match[1] else 0
        if match[1] and not 1 <= abs(ordinal) <= _WEEKS_IN_YEAR:
            raise Fault(f"{name}: the number before a weekday is 1 to 53 or -53 to -1, not {match[1]}")
        found.add((ordinal, _WEEKDAYS.index(match[2])))
    return tuple(sorted(found))


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
    "DTSTART": "put it on a line of its own, or use run_at",
    "TZID": "use the field timezone",
}


def read_rule(text: str, faults: list[str]) -> Rule:
    """Return the rule that `text` (without `RRULE:`) means, adding every fault found to `faults`."""
    values: dict[str, Any] = {}
    before = len(faults)
    text = text.upper()
    # Well-known calendars end their rules with a semicolon; anywhere else an empty part is a slip.
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
        faults.append("FREQ is missing: every rule says how often, such as FREQ=DAILY")
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
        raise Fault("an empty part: parts are separated by single semicolons")
    if name != name.strip() or value != value.strip():
        raise Fault(f"no spaces are allowed in {part.strip()[:40]!r}")
    if name not in _PARTS:
        hint = _HINTS.get(name, f"RFC 5545 knows {', '.join(_PARTS)}")
        raise Fault(f"{name[:40]} is not a part of a rule; {hint}")
    raise Fault(f"{name} has no value: write {name}=…")


def _forbidden(rule: Rule) -> list[str]:
    """Return what RFC 5545 says a rule MUST NOT combine."""
    freq, faults = rule.freq, []
    if rule.count is not None and rule.until is not None:
        faults.append("COUNT and UNTIL exclude each other: a rule ends by one of them")
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
    """Return RFC 5545's two letters for a weekday."""
    return _WEEKDAYS[weekday]
