"""What was written by others, made fit for a terminal."""


def plain(text: str, width: int | None = None) -> str:
    """Return the text with no control characters, and cut where it is wider than `width`."""
    shown = "".join(each if each.isprintable() else "?" for each in text)
    return shown if width is None or len(shown) <= width else shown[: width - 1] + "…"
