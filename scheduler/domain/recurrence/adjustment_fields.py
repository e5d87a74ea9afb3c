"""Parse the request fields calendar, on_closed, window and jitter, and the fields of a calendar."""

import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from scheduler.domain.errors import MAX_PROBLEMS, Problem, Rejected
from scheduler.domain.recurrence.business_calendar import BusinessCalendar, OnClosed
from scheduler.domain.recurrence.day_masks import LAST_DAY, WEEK
from scheduler.domain.recurrence.planner import MAX_SPREAD, Adjustments, Planner
from scheduler.domain.recurrence.spec import Spec
from scheduler.domain.recurrence.window import WEEKDAYS, Window
from scheduler.domain.schedule_fields import ADJUSTMENT_FIELDS

CALENDAR_FIELDS = ("weekend", "closed", "open", "valid_until")
MAX_DATES = 10_000
MAX_NAME = 200
MAX_JITTER = 86_400
_WINDOW_FIELDS = ("from", "to", "days")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATES = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}(?: |\Z))*+")
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")

CalendarFields = tuple[frozenset[int], dict[int, str], dict[int, str], int]  # of a BusinessCalendar
FindCalendar = Callable[[str], BusinessCalendar]  # raises KeyError for an unknown name


def read_adjustments(fields: Mapping[str, Any], find: FindCalendar | None = None) -> Adjustments | None:
    """Return the adjustments of a request, None without any of the fields. Raises Rejected."""
    if all(fields.get(name) is None for name in ADJUSTMENT_FIELDS):
        return None
    problems: list[Problem] = []
    calendar = _calendar(fields.get("calendar"), find, problems)
    on_closed = _on_closed(fields, problems)
    window = _window(fields.get("window"), problems)
    jitter = _jitter(fields.get("jitter"), problems)
    if problems:
        raise rejected_fields(problems)
    return Adjustments(calendar, on_closed, window, jitter)


def spec_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the adjustments of a request as fields of a Spec; empty without any. Raises Rejected."""
    calendar = fields.get("calendar")
    adjustments = read_adjustments(fields, lambda _: BusinessCalendar(frozenset(), {}, {}))
    if adjustments is None:
        return {}
    window, jitter = adjustments.window, adjustments.jitter
    return {
        "calendar": calendar, "on_closed": None if calendar is None else str(adjustments.on_closed),
        "sending_window": None if window is None else window.text, "jitter": jitter or None,
    }


def window_fields(text: str) -> dict[str, Any]:
    """Return the request field of a stored window."""
    hours, *days = text.split(",")
    opens, closes = hours.split("-")
    return {"from": opens, "to": closes} | ({"days": days} if days else {})


def checked_planner(spec: Spec, adjustments: Adjustments, job_id: UUID | None = None) -> Planner:
    """Return the planner of a job. Raises Rejected if it emits nothing, or too much within one jitter."""
    planner = Planner(spec, adjustments, job_id)
    if not planner.emits():
        how = f"with on_closed {adjustments.on_closed}" + (" and this window" if adjustments.window else "")
        problem = f"no occurrence would be emitted within 100 years of the start, {how}"
        raise Rejected([Problem("window" if adjustments.calendar is None else "calendar", problem)])
    if adjustments.jitter and planner.crowd() > MAX_SPREAD:
        problem = f"more than {MAX_SPREAD:,} occurrences would be within one jitter: make it shorter"
        raise Rejected([Problem("jitter", problem)])
    return planner


def rejected_fields(problems: list[Problem]) -> Rejected:
    """Return the rejection; the dates after many wrong ones were not checked."""
    return Rejected(problems, more=None if len(problems) > MAX_PROBLEMS else 0)


def read_calendar(fields: Mapping[str, Any], problems: list[Problem], prefix: str = "") -> BusinessCalendar | None:
    """Return a calendar from the fields of PUT; on errors add to `problems` and return None."""
    read = read_fields(fields, problems, prefix)
    return None if read is None else BusinessCalendar(*read)


def read_fields(fields: Mapping[str, Any], problems: list[Problem], prefix: str = "") -> CalendarFields | None:
    """Return the fields of a BusinessCalendar from those of PUT; on errors add to `problems` and return None."""
    before = len(problems)
    field_names = ", ".join(CALENDAR_FIELDS)
    unknown = [name for name in fields if name not in CALENDAR_FIELDS]
    problem = f"is not a field of a calendar; the fields are {field_names}"
    problems.extend(Problem(f"{prefix}{name}"[:200], problem) for name in unknown)
    weekend = _weekdays(fields.get("weekend"), f"{prefix}weekend", problems)
    listed = [fields.get(name) for name in ("closed", "open")]
    if sum(len(dates) for dates in listed if isinstance(dates, Mapping)) > MAX_DATES:
        problems.append(Problem(f"{prefix}closed", f"closed and open have at most {MAX_DATES:,} dates together"))
        return None
    closed, opened = (
        _dates(dates, f"{prefix}{name}", problems) for name, dates in zip(("closed", "open"), listed, strict=True)
    )
    last, text = LAST_DAY, fields.get("valid_until")
    if text is not None:
        last = _day(text, f"{prefix}valid_until", problems) or LAST_DAY
    if len(problems) > before:
        return None
    return weekend or frozenset(), closed, opened, last


def _calendar(value: Any, find: FindCalendar | None, problems: list[Problem]) -> BusinessCalendar | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return read_calendar(value, problems, "calendar.")
    if not isinstance(value, str):
        problems.append(Problem("calendar", "must be the name of a calendar, or an object with its fields"))
        return None
    if not _NAME.fullmatch(value):
        problems.append(Problem("calendar", "a name has 1 to 100 characters from A-Z, a-z, 0-9, '.', '_' and '-'"))
        return None
    try:
        if find is not None:
            return find(value)
        problem = "names cannot be looked up here; give the calendar's fields as an object"
    except KeyError:
        problem = f"there is no calendar {value}"
    problems.append(Problem("calendar", problem))
    return None


def _on_closed(fields: Mapping[str, Any], problems: list[Problem]) -> OnClosed:
    value = fields.get("on_closed")
    if value is None:
        return OnClosed.SKIP
    if not isinstance(value, str) or value not in tuple(OnClosed):
        problems.append(Problem("on_closed", f"must be one of {', '.join(OnClosed)}"))
        return OnClosed.SKIP
    if fields.get("calendar") is None:
        problems.append(Problem("on_closed", "needs a calendar: without one no day is closed"))
    return OnClosed(value)


def _window(value: Any, problems: list[Problem]) -> Window | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        problems.append(Problem("window", 'must be an object such as {"from": "09:00", "to": "18:00"}'))
        return None
    before = len(problems)
    unknown = [str(name) for name in value if name not in _WINDOW_FIELDS]
    problems.extend(
        Problem(f"window.{name}"[:200], "is not a field of a window; the fields are from, to, days")
        for name in unknown
    )
    opens, closes = (_time(value.get(name), f"window.{name}", problems) for name in ("from", "to"))
    days = _weekdays(value.get("days"), "window.days", problems)
    if days is not None and not days:
        problems.append(Problem("window.days", "must name at least one weekday; leave it out for all seven"))
    if len(problems) > before or opens is None or closes is None:
        return None
    return Window(opens, closes, frozenset(range(WEEK)) if days is None else days)


def _jitter(value: Any, problems: list[Problem]) -> timedelta:
    if value is None:
        return timedelta()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_JITTER:
        problems.append(Problem("jitter", f"must be a number of seconds from 0 to {MAX_JITTER:,}"))
        return timedelta()
    return timedelta(seconds=value)


def _time(value: Any, field: str, problems: list[Problem]) -> int | None:
    if value is None:
        problems.append(Problem(field, "is required, such as 09:00"))
        return None
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        problems.append(Problem(field, "must be a time of day as HH:MM, from 00:00 to 23:59"))
        return None
    return int(match[1]) * 3600 + int(match[2]) * 60


def _weekdays(value: Any, field: str, problems: list[Problem]) -> frozenset[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) and name in WEEKDAYS for name in value):
        problems.append(Problem(field, f"must be a list of weekdays ({', '.join(WEEKDAYS)})"))
        return None
    return frozenset(WEEKDAYS.index(name) for name in value)


def _dates(value: Any, field: str, problems: list[Problem]) -> dict[int, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(Problem(field, 'must be an object such as {"2026-12-25": "Christmas Day"}'))
        return {}
    read = _read_valid(value)
    if read is not None:
        return read
    names_by_day = {}
    for text, name in value.items():
        day = _day(text, field, problems)
        if not isinstance(name, str) or len(name) > MAX_NAME:
            problem = f"the name must be a string of at most {MAX_NAME} characters"
            problems.append(Problem(field, f"{text[:40]}: {problem}"))
        elif day is not None:
            names_by_day[day] = name
        if len(problems) > MAX_PROBLEMS:  # no more are reported
            break
    return names_by_day


def _read_valid(dates: Mapping[str, Any]) -> dict[int, str] | None:
    """Return valid dates, without a Python call for each, or None."""
    names = dates.values()
    if not (set(map(type, names)) <= {str} and max(map(len, names), default=0) <= MAX_NAME
            and _DATES.fullmatch(" ".join(dates))):
        return None
    try:
        return dict(zip(map(date.toordinal, map(date.fromisoformat, dates)), names, strict=True))
    except ValueError:
        return None


def _day(value: Any, field: str, problems: list[Problem]) -> int | None:
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value).toordinal()
        except ValueError:
            problems.append(Problem(field, f"the date {value} does not exist"))
            return None
    given = f", not {value[:40]!r}" if isinstance(value, str) else ""
    problems.append(Problem(field, f"takes dates such as 2026-12-25{given}"))
    return None
