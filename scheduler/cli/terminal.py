"""Untrusted text, styles and times for a terminal."""

import os
import sys
from datetime import datetime, timedelta

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def plain(text: str, width: int | None = None) -> str:
    """Return the text without control characters, truncated to `width`."""
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def coloured() -> bool:
    """Return whether standard output is a terminal that should show colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str | None, *, colour: bool) -> str:
    """Return the text in a style, or as it is."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if colour and style and text else text


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
