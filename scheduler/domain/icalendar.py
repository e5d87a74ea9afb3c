"""Read the all-day events of an iCalendar file (RFC 5545) as closed days."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile

from scheduler.domain.errors import Rejected
from scheduler.domain.recurrence import compile_schedule, resolve

MAX_DAYS = 10_000
MAX_NAME = 200
MAX_LINES = 1_000_000
MAX_STEPS = 20_000  # occurrences of one rule
_LINE = re.compile(r'([A-Za-z0-9-]+)((?:;[A-Za-z0-9-]+=(?:"[^"]*"|[^";:])*)*):(.*)', re.DOTALL)
_PARAMETER = re.compile(r';([A-Za-z0-9-]+)=("[^"]*"|[^";:]*)')
_DATE = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(T[0-9]{6}Z?)?")
_DAYS = re.compile(r"\+?P(?:(?P<weeks>[0-9]{1,4})W|(?P<days>[0-9]{1,5})D)")
_ESCAPE = re.compile(r"\\([\\;,nN])")
_SINGLE = ("DTSTART", "DTEND", "DURATION", "RECURRENCE-ID", "UID", "STATUS", "RRULE")


class InvalidFile(Exception):  # noqa: N818 - an expected outcome, not a failure
    """The file has an error in a line, counted from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line


@dataclass(frozen=True, slots=True)
class _Property:
    line: int
    name: str
    parameters: dict[str, str]
    value: str


@dataclass(slots=True)
class _Event:
    line: int
    properties: dict[str, list[_Property]] = field(default_factory=dict)

    def first(self, name: str) -> _Property | None:
        """Return the first property with a name."""
        return next(iter(self.properties.get(name, ())), None)

    def text(self, name: str) -> str:
        """Return the value of a property; empty if it is missing."""
        entry = self.first(name)
        return "" if entry is None else entry.value


@dataclass(frozen=True, slots=True)
class ClosedDays:
    """Closed days with names, and the numbers of events that are left out."""

    days: dict[date, str]
    timed: int
    cancelled: int


def read_icalendar(text: str, this_year: int) -> ClosedDays:
    """Return the days of the all-day events. Raises InvalidFile.

    A rule without COUNT and UNTIL closes no day after the fifth year from `this_year`.
    """
    events = list(_events(text))
    last = date(this_year + 5, 12, 31)
    overrides = {(event.text("UID"), _recurrence_day(event)) for event in events if event.first("RECURRENCE-ID")}
    days: dict[date, str] = {}
    timed = cancelled = all_day = 0
    for event in events:
        start = event.first("DTSTART")
        if start is None:
            raise InvalidFile(event.line, "the event has no DTSTART")
        if event.text("STATUS").upper() == "CANCELLED":
            cancelled += 1
        elif _is_timed(start):
            timed += 1
        else:
            all_day += 1
            name = _name(event)
            ends = last if _is_endless(event) else date.max
            for first in _starts(event, start, last):
                if event.first("RECURRENCE-ID") or (event.text("UID"), first) not in overrides:
                    for day in takewhile(ends.__ge__, _span(event, start, first)):
                        days.setdefault(day, name)
                if len(days) > MAX_DAYS:
                    raise InvalidFile(event.line, f"the events close more than {MAX_DAYS:,} days")
    if not all_day:
        raise InvalidFile(1, "the file has no all-day event")
    return ClosedDays(dict(sorted(days.items())), timed, cancelled)


def _events(text: str) -> Iterator[_Event]:
    """Yield the events of the file."""
    open_components: list[str] = []
    event: _Event | None = None
    begun = False
    for item in _properties(text):
        name = item.value.strip().upper()
        if item.name.lower() == "begin":
            if not open_components and name != "VCALENDAR":
                raise InvalidFile(item.line, "an iCalendar file begins with BEGIN:VCALENDAR")
            begun = True
            open_components.append(name)
            if name == "VEVENT":
                event = _Event(item.line)
        elif item.name == "END":
            if not open_components or open_components.pop() != name:
                raise InvalidFile(item.line, f"END:{name[:40]} does not match a BEGIN")
            if name == "VEVENT" and event is not None:
                yield event
                event = None
        elif not open_components:
            raise InvalidFile(item.line, "an iCalendar file begins with BEGIN:VCALENDAR")
        elif event is not None and open_components[-1] == "VEVENT":
            values = event.properties.setdefault(item.name, [])
            if values and item.name in _SINGLE:
                raise InvalidFile(item.line, f"the event has more than one {item.name}")
            values.append(item)
    if open_components or not begun:
        missing = f"END:{open_components[-1]}" if open_components else "its first line, BEGIN:VCALENDAR,"
        raise InvalidFile(max(1, text.count("\n")), f"{missing} is missing")


def _properties(text: str) -> Iterator[_Property]:
    for number, line in _unfolded(text):
        match = _LINE.fullmatch(line)
        if match is None:
            raise InvalidFile(number, "is not NAME:VALUE")
        parameters = {name.upper(): value.strip('"') for name, value in _PARAMETER.findall(match[2])}
        yield _Property(number, match[1].upper(), parameters, match[3])


def _unfolded(text: str) -> Iterator[tuple[int, str]]:
    """Yield the content lines, each with the number of its first line."""
    first, parts = 0, list[str]()
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.removesuffix("\r")
        if number > MAX_LINES:
            raise InvalidFile(number, f"the file has more than {MAX_LINES:,} lines")
        if line[:1] in (" ", "\t") and parts:
            parts.append(line[1:])
            continue
        if parts:
            yield first, "".join(parts)
        first, parts = number, [line] if line.strip() else []
    if parts:
        yield first, "".join(parts)


def _is_timed(start: _Property) -> bool:
    return start.parameters.get("VALUE", "DATE-TIME").upper() != "DATE" and "T" in start.value.upper()


def _name(event: _Event) -> str:
    summary = _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], event.text("SUMMARY"))
    return " ".join(summary.split())[:MAX_NAME]


def _recurrence_day(event: _Event) -> date | None:
    identity = event.first("RECURRENCE-ID")
    if identity is not None and "RANGE" in identity.parameters:
        raise InvalidFile(identity.line, "RECURRENCE-ID with RANGE is not supported")
    return None if identity is None else _day(identity, identity.value)


def _day(item: _Property, text: str) -> date:
    match = _DATE.fullmatch(text.strip())
    if match is not None:
        try:
            return date(int(match[1]), int(match[2]), int(match[3]))
        except ValueError:
            raise InvalidFile(item.line, f"{item.name}: the date {text.strip()} does not exist") from None
    raise InvalidFile(item.line, f"{item.name} must be a date such as 20261225, not {text.strip()[:40]!r}")


def _days(items: list[_Property]) -> list[date]:
    return [_day(item, text) for item in items for text in item.value.split(",")]


def _starts(event: _Event, start: _Property, last: date) -> Iterator[date]:
    """Yield the first days of the occurrences of an event."""
    first = _day(start, start.value)
    if event.first("RECURRENCE-ID") is not None:
        yield first
        return
    excluded = set(_days(event.properties.get("EXDATE", [])))
    added = {first, *_days(event.properties.get("RDATE", []))}
    yield from sorted(added - excluded)
    rule = event.first("RRULE")
    if rule is not None:
        yield from (day for day in _rule_days(rule, first, last) if day not in excluded and day not in added)


def _is_endless(event: _Event) -> bool:
    rule = event.first("RRULE")
    return rule is not None and event.first("RECURRENCE-ID") is None and _is_endless_rule(rule)


def _is_endless_rule(rule: _Property) -> bool:
    parts = rule.value.upper().replace(" ", "").split(";")
    return not any(part.startswith(("COUNT=", "UNTIL=")) for part in parts)


def _rule_days(rule: _Property, first: date, last: date) -> Iterator[date]:
    endless = _is_endless_rule(rule)
    midnight = datetime(first.year, first.month, first.day, tzinfo=UTC)
    try:
        schedule = compile_schedule(resolve(run_at=midnight.isoformat(), rrule=rule.value.strip(), cron=None,
                                            every=None, timezone=None, stored_at=midnight))
    except Rejected as rejected:
        raise InvalidFile(rule.line, f"RRULE: {rejected.problems[0].problem}") from None
    for number, instant in enumerate(schedule.since(midnight)):
        if endless and instant.date() > last:
            return
        if number > MAX_STEPS:
            raise InvalidFile(rule.line, f"RRULE has more than {MAX_STEPS:,} occurrences")
        yield instant.date()


def _span(event: _Event, start: _Property, first: date) -> Iterator[date]:
    """Yield the days of an occurrence."""
    length = _length(event, start)
    try:
        yield from (first + timedelta(days=offset) for offset in range(length))
    except OverflowError:
        raise InvalidFile(event.line, "the event is outside the years 1 to 9999") from None


def _length(event: _Event, start: _Property) -> int:
    end, duration = event.first("DTEND"), event.first("DURATION")
    if end is not None and duration is not None:
        raise InvalidFile(duration.line, "the event has both DTEND and DURATION")
    if duration is not None:
        match = _DAYS.fullmatch(duration.value.strip().upper())
        length = 0 if match is None else int(match["weeks"] or 0) * 7 + int(match["days"] or 0)
        if not 1 <= length <= MAX_DAYS:
            raise InvalidFile(duration.line, "DURATION of an all-day event must be days such as P2D")
        return length
    if end is None:
        return 1
    length = (_day(end, end.value) - _day(start, start.value)).days
    if not 0 <= length <= MAX_DAYS:
        raise InvalidFile(end.line, f"DTEND must be after DTSTART, by at most {MAX_DAYS:,} days")
    return max(1, length)  # some programs write the first day
