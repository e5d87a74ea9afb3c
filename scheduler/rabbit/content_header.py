"""The properties of a message as bytes: read where they lie, and changed in single places.

pika makes Python values of a header table and writes them in kinds of its own choice, and some it cannot read at
all. A message that only passes through us must come out as it came in, so what is not to be changed is never
decoded (docs/decisions/0012-delayed-messages.md).
"""

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from scheduler.domain.delayed.delay import HeaderValue, Other, Timestamp

_FLAGS = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
LENGTH_SIZE = _LENGTH.size
MOST_SHORT = 255  # bytes of a short text
COUNTS = frozenset((b"x-delivery-count", b"x-acquired-count"))  # a quorum queue's own marks; from 4.3 on both
_FRACTION = struct.Struct(">Bi")
# In the order of their flags, from the highest: how long each is, where that is fixed.
_PROPERTIES: tuple[tuple[str, int], ...] = tuple((name, 1 << (15 - at)) for at, name in enumerate((
    "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)))
_FLAG = dict(_PROPERTIES)
FIXED = {"delivery_mode": 1, "priority": 1, "timestamp": 8}
_MORE_FLAGS = 1
# As RabbitMQ has them (its errata to AMQP 0-9-1): `s` is a number, and both `l` and `L` are signed.
_NUMBERS = {ord(kind): struct.Struct(f">{code}") for kind, code in (
    ("b", "b"), ("B", "B"), ("s", "h"), ("U", "h"), ("u", "H"), ("I", "i"), ("i", "I"), ("l", "q"), ("L", "q"),
    ("f", "f"), ("d", "d"),
)}
_SIZES = {kind: number.size for kind, number in _NUMBERS.items()} | {ord(kind): size for kind, size in (
    ("t", 1), ("D", 5), ("T", 8), ("V", 0),
)}
_SIZED = frozenset(b"SxAF")  # these say how long they are
_TEXT, _BOOL, _DECIMAL, _TIME, _VOID = b"StDTV"


class UnreadableContent(ValueError):  # noqa: N818 - a verdict, not an accident
    """These bytes are no properties: a length beyond their end, or a kind that nobody knows."""


class HeaderEntry(NamedTuple):
    """One header where it lies: from its name to the end of its value."""

    name: bytes
    start: int
    value: int  # where its value begins, behind the kind
    end: int
    kind: int


@dataclass(slots=True)
class ContentHeader:
    """The properties of a message, each as its bytes."""

    parts: dict[str, bytes]  # without the headers

    entries: list[HeaderEntry]
    table: bytes  # where the entries lie; empty where there are none

    @property
    def has_table(self) -> bool:
        """Whether there is a header table, be it empty."""
        return "headers" in self.parts

    def text(self, name: str) -> str | None:
        """Return a property that is a short text; None where it is not there or no UTF-8."""
        part = self.parts.get(name)
        try:
            return None if part is None else part[1:].decode()
        except UnicodeDecodeError:
            return None

    def values(self, names: Collection[bytes]) -> dict[str, HeaderValue]:
        """Return what these headers say; of two with one name the first."""
        found: dict[str, HeaderValue] = {}
        for entry in self.entries:
            if entry.name in names:
                found.setdefault(entry.name.decode(), value(self.table, entry))
        return found

    def written(
        self, *, drop: Collection[bytes] = (), replace: Mapping[bytes, bytes] | None = None,
        add: Mapping[bytes, bytes] | None = None, without: Collection[str] = (),
    ) -> bytes:
        """Return the bytes again: headers dropped, replaced and added by name, and without these properties."""
        replaced, added = replace or {}, add or {}
        parts = {name: part for name, part in self.parts.items() if name not in without}
        if added or self.has_table:
            pieces = [
                header(entry.name, replaced[entry.name]) if entry.name in replaced
                else self.table[entry.start : entry.end]
                for entry in self.entries if entry.name not in drop and entry.name not in added
            ]
            pieces += [header(name, written) for name, written in added.items()]
            table = b"".join(pieces)
            parts["headers"] = _LENGTH.pack(len(table)) + table
        flags = sum(_FLAG[name] for name in parts)
        return _FLAGS.pack(flags) + b"".join([parts[name] for name, _ in _PROPERTIES if name in parts])


class HeaderLocation(NamedTuple):
    """Where the header table lies, its length included, and the message_id; the rest need not be taken apart."""

    start: int  # 0 where there is none
    end: int
    message_id: bytes | None


def _unreadable(error: Exception) -> UnreadableContent:
    return UnreadableContent(f"{type(error).__name__}: {error}")


def locate(raw: bytes) -> HeaderLocation:
    """Find the headers and the message_id of what only passes through, or raise UnreadableContent."""
    try:
        return _locate(raw)
    except (IndexError, struct.error) as error:
        raise _unreadable(error) from None


def _locate(raw: bytes) -> HeaderLocation:
    """Step over each property that its flag says is there; written out, for every delayed message comes by."""
    flags = raw[0] << 8 | raw[1]
    at, start, end, message_id = _FLAGS.size, 0, 0, None
    if flags & 0x8000:  # content_type
        at += 1 + raw[at]
    if flags & 0x4000:  # content_encoding
        at += 1 + raw[at]
    if flags & 0x2000:  # headers
        start = at
        at = end = at + _LENGTH.size + _LENGTH.unpack_from(raw, at)[0]
    at += (flags >> 12 & 1) + (flags >> 11 & 1)  # delivery_mode, priority
    if flags & 0x0700:
        for flag in (0x0400, 0x0200, 0x0100):  # correlation_id, reply_to, expiration
            if flags & flag:
                at += 1 + raw[at]
    if flags & 0x0080:
        begin = at + 1
        at = begin + raw[at]
        message_id = raw[begin:at]
    at += flags >> 3 & 8  # timestamp
    if flags & 0x003C:
        for flag in (0x0020, 0x0010, 0x0008, 0x0004):  # type, user_id, app_id, cluster_id
            if flags & flag:
                at += 1 + raw[at]
    if flags & _MORE_FLAGS or at != len(raw):
        raise UnreadableContent("their lengths do not add up")
    return HeaderLocation(start, end, message_id)


def headers(table: bytes) -> list[HeaderEntry]:
    """Return the headers of a table whose length stands before it, where they lie in it."""
    try:
        return list(_entries(table, _LENGTH.size, len(table)))
    except (IndexError, struct.error) as error:
        raise _unreadable(error) from None


def elements(array: bytes) -> list[HeaderEntry]:
    """Return the values of an array whose length stands before it, where they lie in it; they have no names."""
    try:
        return list(_elements(array, _LENGTH.size))
    except (IndexError, struct.error) as error:
        raise _unreadable(error) from None


def table(pieces: Sequence[bytes]) -> bytes:
    """Write headers as a table, its length before it."""
    return b"".join((_LENGTH.pack(sum(map(len, pieces))), *pieces))


def read(raw: bytes) -> ContentHeader:
    """Take the bytes apart, from the flags on, or raise UnreadableContent."""
    try:
        return _read(raw)
    except (IndexError, struct.error) as error:
        raise _unreadable(error) from None


def _read(raw: bytes) -> ContentHeader:
    [flags] = _FLAGS.unpack_from(raw)
    if flags & _MORE_FLAGS:
        raise UnreadableContent("more properties than there are")
    at = _FLAGS.size
    parts: dict[str, bytes] = {}
    entries: list[HeaderEntry] = []
    table = b""
    for name, flag in _PROPERTIES:
        if not flags & flag:
            continue
        if name == "headers":
            end = at + _LENGTH.size + _LENGTH.unpack_from(raw, at)[0]
            table = raw[at + _LENGTH.size : end]
            entries = list(_entries(table, 0, len(table)))
        else:
            end = at + (FIXED.get(name) or 1 + raw[at])
        parts[name] = raw[at:end]
        at = end
    if at != len(raw):
        raise UnreadableContent("their lengths do not add up")
    return ContentHeader(parts, entries, table)


def _entries(table: bytes, at: int, size: int) -> Iterator[HeaderEntry]:
    while at < size:
        name = at + 1
        end = name + table[at]
        kind, value = table[end], end + 1
        after = _end(table, kind, value)
        if after > size:
            raise UnreadableContent("a header goes beyond their end")
        yield HeaderEntry(table[name:end], at, value, after, kind)
        at = after


def _elements(array: bytes, at: int) -> Iterator[HeaderEntry]:
    while at < len(array):
        kind, value = array[at], at + 1
        after = _end(array, kind, value)
        if after > len(array):
            raise UnreadableContent("a value goes beyond the end of its array")
        yield HeaderEntry(b"", at, value, after, kind)
        at = after


def _end(table: bytes, kind: int, at: int) -> int:
    if kind in _SIZED:
        return at + _LENGTH.size + int(_LENGTH.unpack_from(table, at)[0])
    size = _SIZES.get(kind)
    if size is None:
        raise UnreadableContent(f"no kind of value is called {chr(kind)!a}")
    return at + size


def value(table: bytes, entry: HeaderEntry) -> HeaderValue:
    """Return what a header says."""
    kind, at = entry.kind, entry.value
    number = _NUMBERS.get(kind)
    if number is not None:
        found: int | float = number.unpack_from(table, at)[0]
        return found
    if kind == _BOOL:
        return bool(table[at])
    if kind == _DECIMAL:
        scale, unscaled = _FRACTION.unpack_from(table, at)
        return Decimal(unscaled).scaleb(-scale)
    if kind == _TIME:
        return Timestamp(int.from_bytes(table[at : at + 8], "big"))
    if kind == _VOID:
        return None
    if kind == _TEXT:
        try:
            return table[at + _LENGTH.size : entry.end].decode()
        except UnicodeDecodeError:
            pass
    return Other(chr(kind))


def header(name: bytes, written: bytes) -> bytes:
    """Write a header whose value is written already."""
    return bytes((len(name),)) + name + written


def number(whole: int) -> bytes:
    """Write a whole number as 64 bits with a sign, as RabbitMQ has it."""
    return b"l" + struct.pack(">q", whole)


def text(content: str | bytes) -> bytes:
    """Write a text."""
    encoded = content if isinstance(content, bytes) else content.encode()
    return b"S" + _LENGTH.pack(len(encoded)) + encoded


def short(content: str) -> bytes:
    """Write a property that is a short text."""
    encoded = content.encode()
    return bytes((len(encoded),)) + encoded
