"""Decode all properties and headers to Python values, including nested ones."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scheduler.domain.delayed.delay import Other, Timestamp
from scheduler.rabbit import content_header
from scheduler.rabbit.content_header import ContentHeader, HeaderEntry

_MAX_DEPTH = 20
_MAX_NESTED = 1000  # values in tables and arrays; the rest is an ellipsis
_DEATH = b"x-death"  # decides where a dead letter is replayed to
_TABLE, _ARRAY = b"FA"


@dataclass(slots=True)
class NestedAllowance:
    """The number of further values in tables and arrays to decode."""

    left: int = _MAX_NESTED


def properties(content: ContentHeader) -> dict[str, str | int]:
    """Return all properties except the headers; bytes that are not UTF-8 become backslash escapes."""
    return {
        name: int.from_bytes(part, "big") if name in content_header.FIXED_SIZES else as_text(part[1:])
        for name, part in content.parts.items() if name != "headers"
    }


def headers(content: ContentHeader) -> dict[str, Any]:
    """Return the headers; a time beyond the range of datetime is a Timestamp, and too deep values an ellipsis."""
    return _table(content.table, content.entries, 0, NestedAllowance())


def as_text(name: bytes) -> str:
    """Return bytes as text; bytes that are not UTF-8 become backslash escapes."""
    return name.decode("utf-8", "backslashreplace")


def _table(table: bytes, entries: Sequence[HeaderEntry], depth: int, allowance: NestedAllowance) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for entry in entries:  # if a name is repeated, the broker reads and replaces the first
        name = as_text(entry.name)
        if name in values:
            continue
        if depth:
            if not allowance.left:
                values["…"] = "…"
                break
            allowance.left -= 1
        own = NestedAllowance() if entry.name == _DEATH and not depth else allowance
        values[name] = _value(table, entry, depth, own)
    return values


def _array(table: bytes, entries: Sequence[HeaderEntry], depth: int, allowance: NestedAllowance) -> list[Any]:
    values: list[Any] = []
    for entry in entries:
        if not allowance.left:
            values.append("…")
            break
        allowance.left -= 1
        values.append(_value(table, entry, depth, allowance))
    return values


def _value(table: bytes, entry: HeaderEntry, depth: int, allowance: NestedAllowance) -> Any:
    match value := content_header.value(table, entry):
        case Timestamp(seconds):
            return _instant(seconds) or value
        case Other():
            return _nested(entry.kind, table[entry.value : entry.end], depth + 1, allowance)
    return value


def _nested(kind: int, encoded: bytes, depth: int, allowance: NestedAllowance) -> Any:
    """Decode a value that starts with its length."""
    if kind in (_TABLE, _ARRAY) and (depth > _MAX_DEPTH or not allowance.left):
        return "…"
    with suppress(content_header.UnreadableContent):
        if kind == _TABLE:
            return _table(encoded, content_header.headers(encoded, allowance.left + 1), depth, allowance)
        if kind == _ARRAY:
            return _array(encoded, content_header.elements(encoded, allowance.left + 1), depth, allowance)
    return encoded[content_header.LENGTH_SIZE :]


def _instant(seconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
