"""Read a calendar from a file: iCalendar, or JSON as for PUT or as printed by `calendar show --json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.domain.calendars import CALENDAR_BYTES, check_content
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.icalendar import InvalidFile, read_icalendar
from scheduler.domain.recurrence.adjustment_fields import CALENDAR_FIELDS
from scheduler.domain.strict_json import parse_object

MAX_BYTES = 4 * CALENDAR_BYTES
STORED_FIELDS = ("name", "tenant", "version", "jobs", "updated_at", "updated_by")  # of `calendar show --json`


@dataclass(frozen=True, slots=True)
class CalendarFile:
    """The fields of a calendar, and the parts of the file that were ignored."""

    fields: dict[str, Any]
    notes: tuple[str, ...] = ()
    is_icalendar: bool = False


def read_file(body: bytes, this_year: int) -> CalendarFile:
    """Return the calendar in a file. Raises InvalidFile."""
    if len(body) > MAX_BYTES:
        raise InvalidFile(1, f"the file has more than {MAX_BYTES:,} bytes")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidFile(body.count(b"\n", 0, error.start) + 1, "is not UTF-8") from None
    if text.lstrip()[:1] == "{":
        return CalendarFile(_read_json(text))
    days = read_icalendar(text, this_year)
    closed = {day.isoformat(): name for day, name in days.days.items()}
    last = max(days.days, default=None)
    fields = {"closed": closed, "valid_until": None if last is None else f"{last.year:04}-12-31"}
    notes = [f"{number} {what} left out" for number, what in (
        (days.timed, "events with a time of day"), (days.cancelled, "cancelled events"),
    ) if number]
    return CalendarFile(fields, tuple(notes), is_icalendar=True)


def _read_json(text: str) -> dict[str, Any]:
    try:
        json.loads(text)  # reports the line of an error
        members, _ = parse_object(text.encode(), exact="")
        fields = {name: value for name, value in members.items() if name not in STORED_FIELDS}
        if unknown := [name for name in fields if name not in CALENDAR_FIELDS]:
            field_names = ", ".join(CALENDAR_FIELDS)
            raise Rejected([Problem(unknown[0], f"is not a field of a calendar; the fields are {field_names}")])
        check_content(fields)
    except json.JSONDecodeError as error:
        raise InvalidFile(error.lineno, f"is not JSON: {error.msg}") from None
    except RecursionError:
        raise InvalidFile(1, "is nested too deeply") from None
    except Rejected as rejected:
        problem = rejected.problems[0]
        raise InvalidFile(_line(text, problem, fields if "fields" in locals() else {}),
                          f"{problem.field}: {problem.problem}") from None
    return fields


def _line(text: str, problem: Problem, fields: Mapping[str, Any]) -> int:
    """Return the line of a problem: the date's line if it names a date, otherwise the field's."""
    at = max(0, text.find(json.dumps(problem.field)))
    dates = fields.get(problem.field)
    if isinstance(dates, Mapping):
        named = [text.find(json.dumps(day), at) for day in dates if day[:40] and day[:40] in problem.problem]
        at = next((position for position in named if position >= 0), at)
    return text.count("\n", 0, at) + 1
