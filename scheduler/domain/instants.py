"""Format and parse RFC 3339 instants."""

import re
from datetime import UTC, datetime

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", flags=re.ASCII
)


def rfc3339(instant: datetime) -> str:
    """Format an aware instant as `2026-12-01T08:00:00.000000Z`."""
    if instant.tzinfo is not UTC:
        instant = instant.astimezone(UTC)
    # Twice as fast as isoformat, which calls tzinfo.utcoffset.
    return "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ" % (  # noqa: UP031 - faster than an f-string
        instant.year, instant.month, instant.day, instant.hour, instant.minute, instant.second, instant.microsecond
    )


def parse_instant(text: str) -> datetime:
    """Parse an RFC 3339 instant with an offset. Raises ValueError with a fix.

    Digits beyond microseconds (Go, Java and .NET write them) are truncated.
    """
    if not _RFC3339.fullmatch(text):
        raise ValueError("must be RFC 3339 with an offset, like 2026-12-01T08:00:00.000000Z")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is not a date and time that exists: {error}") from None
