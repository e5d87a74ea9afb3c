"""Read and write single fields of the job form."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.views.base import Verbatim

LEFT_OUT = object()


@dataclass(slots=True)
class ParsedForm:
    """The request's fields from a form, and its problems by field."""

    fields: dict[str, Any] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def put(read: ParsedForm, name: str, value: Any) -> None:
    """Set a field unless its value is empty."""
    text = value.strip() if isinstance(value, str) else value
    if text not in (None, "", LEFT_OUT):
        read.fields[name] = text


def read_number(form: Mapping[str, str], read: ParsedForm, name: str, *, about: str | None = None) -> Any:
    """Return a whole or fractional number of a field, or LEFT_OUT."""
    text = (form.get(name) or "").strip()
    if not text:
        return LEFT_OUT
    try:
        value = float(text)
        return int(value) if value == int(value) else value
    except (ValueError, OverflowError):
        read.problems[about or name] = f"must be a number, not {text[:40]!r}"
        return LEFT_OUT


def number_text(value: float) -> str:
    """Return a number for an input, with all its digits."""
    return str(int(value)) if value == int(value) else repr(float(value))


def pretty(value: Any) -> str:
    """Format a value as JSON; a payload as its source text."""
    return value.text if isinstance(value, Verbatim) else json.dumps(value, indent=2, ensure_ascii=False)
