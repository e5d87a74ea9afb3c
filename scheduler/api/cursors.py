"""Where a page of a list ended, as an opaque text that the next request brings back."""

import base64
import binascii
import json
import re
from datetime import UTC, datetime

from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem

_LONGEST = 200
_KEY = re.compile(r"[01]?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|1[0-9]{19}", re.ASCII)


def write(kind: str, moment: datetime, key: str) -> str:
    """Return the cursor of a place in a list of one kind."""
    text = json.dumps([kind, moment.astimezone(UTC).isoformat(), key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read(kind: str, cursor: str | None) -> tuple[datetime, str] | None:
    """Return the place that a cursor stands for; raise Unprocessable for one that is not of this kind of list."""
    if cursor is None:
        return None
    try:
        if len(cursor) > _LONGEST or not cursor.isascii():
            raise ValueError(cursor)
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found, moment, key = json.loads(text)
        when = datetime.fromisoformat(moment)
        if found != kind or when.tzinfo is None or not isinstance(key, str):
            raise ValueError(cursor)
        if not _KEY.fullmatch(key):
            raise ValueError(cursor)
        return when.astimezone(UTC), key
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error):
        problem = Problem("after", "is not a cursor of this list; use `next` of its last answer")
        raise Unprocessable([problem]) from None
