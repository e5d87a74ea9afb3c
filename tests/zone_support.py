"""Directories of compiled zone files, as an operator would make them."""

import struct
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

_HEADER = struct.Struct(">4sc15x6I")
Change = tuple[datetime, int]  # an instant and the offset from then on, in hours


def zone_file(first: float, *changes: Change, footer: str = "") -> bytes:
    """Return a TZif file (RFC 9636) with these offsets in hours; after them the footer's rule applies."""
    offsets = [first, *(offset for _, offset in changes)]
    empty = _HEADER.pack(b"TZif", b"2", 0, 0, 0, 0, 1, 1) + struct.pack(">iBB", 0, 0, 0) + b"\0"
    types = b"".join(struct.pack(">iBB", round(offset * 3600), 0, 0) for offset in offsets)
    times = struct.pack(f">{len(changes)}q", *(int(at.timestamp()) for at, _ in changes))
    header = _HEADER.pack(b"TZif", b"2", 0, 0, 0, len(changes), len(offsets), 4)
    body = times + bytes(range(1, len(offsets))) + types + b"XXX\0"
    return empty + header + body + f"\n{footer or fixed(offsets[-1])}\n".encode()


def fixed(hours: float) -> str:
    """Return a POSIX TZ string, whose sign is the other way round."""
    minutes = round(abs(hours) * 60)
    return f"<XXX>{'-' if hours > 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def zone_directory(where: Path, version: str, zones: Mapping[str, bytes], *, others: Sequence[str] = ()) -> str:
    """Write a directory for SCHEDULER_ZONEINFO_DIR and return its path."""
    for name, content in zones.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for name in others:
        (where / name).write_text("not a zone\n")
    (where / "+VERSION").write_text(f"{version}\n")
    return str(where)
