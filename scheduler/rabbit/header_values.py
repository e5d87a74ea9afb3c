"""What properties and headers say, all of them and however deep: for people, and for what the broker writes."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from scheduler.domain.delayed.delay import Other, Timestamp
from scheduler.rabbit import content_header
from scheduler.rabbit.content_header import ContentHeader, HeaderEntry

_DEEPEST = 20
_TABLE, _ARRAY = b"FA"


def properties(found: ContentHeader) -> dict[str, str | int]:
    """Return all properties but the headers; what is no UTF-8 is written with backslashes."""
    return {
        name: int.from_bytes(part, "big") if name in content_header.FIXED else as_text(part[1:])
        for name, part in found.parts.items() if name != "headers"
    }


def headers(found: ContentHeader) -> dict[str, Any]:
    """Return the headers; a Timestamp is one that no datetime can be, and what is too deep is an ellipsis."""
    return _table(found.table, found.entries, 0)


def as_text(name: bytes) -> str:
    """Return a name as people can read it."""
    return name.decode("utf-8", "backslashreplace")


def _table(table: bytes, entries: Sequence[HeaderEntry], depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in entries:  # of two with one name the first: the one that the broker itself looks at and replaces
        name = as_text(entry.name)
        if name not in found:
            found[name] = _value(table, entry, depth)
    return found


def _value(table: bytes, entry: HeaderEntry, depth: int) -> Any:
    match said := content_header.value(table, entry):
        case Timestamp(seconds):
            return _instant(seconds) or said
        case Other():
            return _nested(entry.kind, table[entry.value : entry.end], depth + 1)
    return said


def _nested(kind: int, written: bytes, depth: int) -> Any:
    """Read what has a length before it."""
    if kind in (_TABLE, _ARRAY) and depth > _DEEPEST:
        return "…"
    with suppress(content_header.UnreadableContent):
        if kind == _TABLE:
            return _table(written, content_header.headers(written), depth)
        if kind == _ARRAY:
            return [_value(written, each, depth) for each in content_header.elements(written)]
    return written[content_header.LENGTH_SIZE :]


def _instant(seconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
