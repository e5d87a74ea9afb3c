"""What was written by others, made fit for a terminal; and times in words."""

from datetime import datetime, timedelta


def plain(text: str, width: int | None = None) -> str:
    """Return the text with no control characters, and cut where it is wider than `width`."""
    shown = "".join(each if each.isprintable() else "?" for each in text)
    return shown if width is None or len(shown) <= width else shown[: width - 1] + "…"


def from_now(moment: datetime, now: datetime) -> str:
    """Say how far away a moment is."""
    return f"in {span(moment - now)}" if moment > now else f"{span(now - moment)} ago"


def span(time: timedelta) -> str:
    """Write a span of time in its one or two largest units."""
    seconds = max(0.0, time.total_seconds())
    if seconds < 120:  # noqa: PLR2004 - two minutes: until then the fraction matters
        return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.1f} s"  # noqa: PLR2004 - as many digits as matter
    whole = round(seconds)
    for large, small, size, part in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {large}" + (f" {rest} {small}" if rest else "")
    raise AssertionError(time)
