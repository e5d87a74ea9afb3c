"""The calendar form: days as lines of text, and the days that a change opens or closes."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.api.console.formatting import NOTHING
from scheduler.domain.recurrence.window import WEEKDAYS
from scheduler.views.calendars import CalendarView

_LINE = re.compile(r"\s*([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[\s,;:]+(.*))?")
_CHANGES_SHOWN = 100
CONTENT = ("weekend", "closed", "open", "valid_until")


def read_calendar_form(form: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of a calendar, and problems by field."""
    problems: dict[str, str] = {}
    fields: dict[str, Any] = {"weekend": [day for day in WEEKDAYS if form.get(f"weekend_{day}")]}
    for name in ("closed", "open"):
        fields[name] = _days(form.get(name) or "", name, problems)
    if until := (form.get("valid_until") or "").strip():
        fields["valid_until"] = until
    return fields, problems


def _days(text: str, name: str, problems: dict[str, str]) -> dict[str, str]:
    days: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is not None:
            days[match[1]] = (match[2] or "").strip()
        elif line.strip():
            given = line.strip()[:40]
            problem = f"must be a date and a name, such as 2026-12-25 Christmas Day, not {given!r}"
            problems.setdefault(name, f"line {number}: {problem}")
    return days


def calendar_values(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs for the fields of a calendar."""
    values = {name: "\n".join(f"{day} {title}".rstrip() for day, title in (fields.get(name) or {}).items())
              for name in ("closed", "open")}
    weekend = {f"weekend_{day}": "on" for day in fields.get("weekend") or ()}
    return values | weekend | {"valid_until": str(fields.get("valid_until") or "")}


def content_of(view: CalendarView) -> dict[str, Any]:
    """Return the fields that define a calendar, as for PUT."""
    fields = json.loads(view.model_dump_json(include=set(CONTENT)))
    return {name: fields[name] for name in CONTENT if fields[name] is not None}


@dataclass(frozen=True, slots=True)
class ContentChange:
    """One day or field that a new version of a calendar changes."""

    what: str  # added, removed or renamed, or the name of a field
    day: str
    text: str


def calendar_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[list[ContentChange], int]:
    """Return the changes by date, up to a limit, and their number."""
    changes = [change for name in ("closed", "open")
               for change in _day_changes(name, before.get(name) or {}, after.get(name) or {})]
    changes.sort(key=lambda change: (change.day, change.what))
    changed = []
    for name, label in (("weekend", "Closed weekdays"), ("valid_until", "Valid until")):
        old, new = (_text(fields.get(name)) for fields in (before, after))
        if old != new:
            changed.append(ContentChange(label, "", f"{old} → {new}"))
    all_changes = [*changed, *changes]
    return all_changes[:_CHANGES_SHOWN], len(all_changes)


def _text(value: Any) -> str:
    return (", ".join(value) if isinstance(value, list) else value) or NOTHING


def _day_changes(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[ContentChange]:
    changes = []
    for day in before.keys() | after.keys():
        if day not in before:
            changes.append(ContentChange(f"+ {name}", day, after[day]))
        elif day not in after:
            changes.append(ContentChange(f"{NOTHING} {name}", day, before[day]))
        elif before[day] != after[day]:
            renamed = f"{_text(before[day])} → {_text(after[day])}"
            changes.append(ContentChange(f"{name}, renamed", day, renamed))
    return changes
