"""What a command wrote, as people can read it and as it fits into a result."""

import json
from collections.abc import Mapping

from scheduler.domain.runs.result import OUTPUT_BYTES

_KEPT_AS_THEY_ARE = "\n\r\t"
_CONTINUATION = range(0x80, 0xC0)


def printable(raw: bytes) -> str:
    """Return the text; bytes that are no UTF-8 and characters that cannot be seen are written out (`\\xff`)."""
    start = 0
    while start < min(3, len(raw)) and raw[start] in _CONTINUATION:
        start += 1  # the first bytes of this character were cut off
    text = raw[start:].decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in _KEPT_AS_THEY_ARE
        else each.encode("unicode_escape").decode()
        for each in text
    )


def fitted(
    about: Mapping[str, int], stdout: str, stderr: str, limit: int = OUTPUT_BYTES
) -> dict[str, int | str]:
    """Return an output whose JSON takes at most `limit` bytes: the last of each stream, whatever else is left out.

    A stream that needs less than its half leaves the rest to the other.
    """
    room = limit - _size(dict(about) | {"stdout": "", "stderr": ""}) - 2
    sizes = {"stdout": _size(stdout), "stderr": _size(stderr)}
    room_of = {
        "stdout": max(room // 2, room - sizes["stderr"]), "stderr": max(room - room // 2, room - sizes["stdout"]),
    }
    return dict(about) | {
        "stdout": _last(stdout, sizes["stdout"], room_of["stdout"]),
        "stderr": _last(stderr, sizes["stderr"], room_of["stderr"]),
    }


def _size(value: object) -> int:
    """Return the bytes that a value takes as JSON, as results write it, within its quotes or braces."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) - 2


def _last(text: str, size: int, room: int) -> str:
    """Return as much of the end as there is room for."""
    if size <= room:
        return text
    first, last = 0, len(text)  # the shortest cut that fits lies between
    while first < last:
        middle = (first + last) // 2
        if _size(text[middle:]) <= room:
            last = middle
        else:
            first = middle + 1
    return text[first:]
