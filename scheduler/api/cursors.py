"""Encode and decode the cursors of lists: opaque strings with the position where a page ended."""

import base64
import binascii
import json
import re
from datetime import UTC, datetime

from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.message_base import UUID_PATTERN

_LONGEST = 500
_NUMBER = r"10[0-9]{18}"  # a 1, then 19 digits that always fit into a bigint
_KEYS = {kind: re.compile(key, re.ASCII) for kind, key in {
    "jobs": UUID_PATTERN, "runs": UUID_PATTERN, "next": UUID_PATTERN, "late": UUID_PATTERN,
    "delayed": _NUMBER,
    "audit": f"0{UUID_PATTERN}|{_NUMBER}",
}.items()}


def write(kind: str, moment: datetime, key: str) -> str:
    """Return the cursor for a position in a list of this kind."""
    return write_strings(kind, moment.astimezone(UTC).isoformat(), key)


def read(kind: str, cursor: str | None) -> tuple[datetime, str] | None:
    """Return the position in a cursor. Raises Unprocessable if it belongs to another kind of list."""
    if cursor is None:
        return None
    moment, key = read_strings(kind, cursor)
    try:
        instant = datetime.fromisoformat(moment)
        if instant.tzinfo is None or not _KEYS[kind].fullmatch(key):
            raise _invalid()
        return instant.astimezone(UTC), key
    except (ValueError, OverflowError):
        raise _invalid() from None


def read_number(cursor: str) -> int:
    """Return the position in a cursor that is a number."""
    if re.fullmatch(r"[1-9][0-9]{0,8}", cursor, re.ASCII) is None:
        raise _invalid()
    return int(cursor)


def write_strings(kind: str, first: str, second: str) -> str:
    """Return the cursor for a position that consists of two strings."""
    text = json.dumps([kind, first, second], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_strings(kind: str, cursor: str | None) -> tuple[str, str]:
    """Return the two strings; without a cursor, empty ones, which sort first."""
    if cursor is None:
        return "", ""
    try:
        if len(cursor) > _LONGEST or not cursor.isascii():
            raise _invalid()
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        actual_kind, first, second = json.loads(text)
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise _invalid() from None
    if actual_kind != kind or not isinstance(first, str) or not isinstance(second, str):
        raise _invalid()
    return first, second


def _invalid() -> Unprocessable:
    return Unprocessable([Problem("after", "is not a cursor of this list; use `next` of the previous response")])
