"""Format the output of a command for readers, within the size limit of a result."""

import json
from collections.abc import Mapping

from scheduler.domain.runs.result import OUTPUT_BYTES

_UNESCAPED = "\n\r\t"
_CONTINUATION = range(0x80, 0xC0)


def printable(raw: bytes) -> str:
    """Return the text with invalid UTF-8 and unprintable characters escaped (`\\xff`)."""
    start = 0
    while start < min(3, len(raw)) and raw[start] in _CONTINUATION:
        start += 1  # the first bytes of this character were cut off
    text = raw[start:].decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in _UNESCAPED
        else character.encode("unicode_escape").decode()
        for character in text
    )


def fit_output(
    fields: Mapping[str, int], stdout: str, stderr: str, limit: int = OUTPUT_BYTES
) -> dict[str, int | str]:
    """Return an output of at most `limit` bytes of JSON: the fields and the end of each stream.

    A stream that needs less than half of the space leaves the rest to the other.
    """
    space = limit - _size(dict(fields) | {"stdout": "", "stderr": ""}) - 2
    sizes = {"stdout": _size(stdout), "stderr": _size(stderr)}
    space_for = {
        "stdout": max(space // 2, space - sizes["stderr"]),
        "stderr": max(space - space // 2, space - sizes["stdout"]),
    }
    return dict(fields) | {
        "stdout": _tail(stdout, sizes["stdout"], space_for["stdout"]),
        "stderr": _tail(stderr, sizes["stderr"], space_for["stderr"]),
    }


def _size(value: object) -> int:
    """Return the bytes of a value as JSON, as results contain it, without its quotes or braces."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) - 2


def _tail(text: str, size: int, space: int) -> str:
    """Return the longest end of a text that fits."""
    if size <= space:
        return text
    first, last = 0, len(text)  # bisect the cut
    while first < last:
        middle = (first + last) // 2
        if _size(text[middle:]) <= space:
            last = middle
        else:
            first = middle + 1
    return text[first:]
