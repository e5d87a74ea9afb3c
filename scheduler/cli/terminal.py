"""Untrusted text and times for a terminal."""

from datetime import datetime, timedelta


def plain(text: str, width: int | None = None) -> str:
    """Return the text without control characters, truncated to `width`."""
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def from_now(moment: datetime, now: datetime) -> str:
    """Format the time until or since a moment."""
    return f"in {span(moment - now)}" if moment > now else f"{span(now - moment)} ago"


def span(time: timedelta) -> str:
    """Format a span of time in its one or two largest units."""
    seconds = max(0.0, time.total_seconds())
    if seconds < 120:  # noqa: PLR2004 - two minutes: fractions matter below
        return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.1f} s"  # noqa: PLR2004 - three significant digits
    whole = round(seconds)
    for large, small, size, part in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {large}" + (f" {rest} {small}" if rest else "")
    raise AssertionError(time)
