"""Where a page of a list ended, as an opaque text that the next request brings back."""

import base64
import binascii
import json
import re
from datetime import UTC, datetime

from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.messages.base import UUID_PATTERN

_LONGEST = 500
_NUMBER = r"10[0-9]{18}"  # after a 1 a number of 19 digits, no greater than a bigint holds in any case
_KEYS = {kind: re.compile(key, re.ASCII) for kind, key in {
    "jobs": UUID_PATTERN, "runs": UUID_PATTERN, "next": UUID_PATTERN, "delayed": _NUMBER,
    "audit": f"0{UUID_PATTERN}|{_NUMBER}",
}.items()}


def write(kind: str, moment: datetime, key: str) -> str:
    """Return the cursor of a place in a list of one kind."""
    return write_texts(kind, moment.astimezone(UTC).isoformat(), key)


def read(kind: str, cursor: str | None) -> tuple[datetime, str] | None:
    """Return the place that a cursor stands for; raise Unprocessable for one that is not of this kind of list."""
    if cursor is None:
        return None
    moment, key = read_texts(kind, cursor)
    try:
        when = datetime.fromisoformat(moment)
        if when.tzinfo is None or not _KEYS[kind].fullmatch(key):
            raise _wrong()
        return when.astimezone(UTC), key
    except (ValueError, OverflowError):
        raise _wrong() from None


def write_texts(kind: str, first: str, second: str) -> str:
    """Return the cursor of a place that is two texts."""
    text = json.dumps([kind, first, second], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_texts(kind: str, cursor: str | None) -> tuple[str, str]:
    """Return the two texts; before all others where there is no cursor."""
    if cursor is None:
        return "", ""
    try:
        if len(cursor) > _LONGEST or not cursor.isascii():
            raise _wrong()
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found, first, second = json.loads(text)
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise _wrong() from None
    if found != kind or not isinstance(first, str) or not isinstance(second, str):
        raise _wrong()
    return first, second


def _wrong() -> Unprocessable:
    return Unprocessable([Problem("after", "is not a cursor of this list; use `next` of its last answer")])
