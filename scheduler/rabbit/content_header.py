"""Read and edit the encoded properties of a message in place.

pika decodes a header table to Python values, may encode them again with other types, and cannot decode some at
all. A forwarded message must leave unchanged, so only the parts that change are decoded
(docs/decisions/0012-delayed-messages.md).
"""

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import NamedTuple

from scheduler.domain.delayed.delay import HeaderValue, Other, Timestamp

_FLAGS = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
LENGTH_SIZE = _LENGTH.size
MAX_SHORT = 255  # bytes of a short string
COUNTS = frozenset((b"x-delivery-count", b"x-acquired-count"))  # written by quorum queues; both since RabbitMQ 4.3
_FRACTION = struct.Struct(">Bi")
# In the order of their flags, the highest first.
_PROPERTIES: tuple[tuple[str, int], ...] = tuple((name, 1 << (15 - at)) for at, name in enumerate((
    "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)))
_FLAG = dict(_PROPERTIES)
FIXED_SIZES = {"delivery_mode": 1, "priority": 1, "timestamp": 8}
_MORE_FLAGS = 1
# RabbitMQ's types (its errata to AMQP 0-9-1): `s` is a number, and both `l` and `L` are signed.
_NUMBERS = {ord(kind): struct.Struct(f">{code}") for kind, code in (
    ("b", "b"), ("B", "B"), ("s", "h"), ("U", "h"), ("u", "H"), ("I", "i"), ("i", "I"), ("l", "q"), ("L", "q"),
    ("f", "f"), ("d", "d"),
)}
_SIZES = {kind: number.size for kind, number in _NUMBERS.items()} | {ord(kind): size for kind, size in (
    ("t", 1), ("D", 5), ("T", 8), ("V", 0),
)}
_LENGTH_PREFIXED = frozenset(b"SxAF")
_TEXT, _BOOL, _DECIMAL, _TIME, _VOID = b"StDTV"


class UnreadableContent(ValueError):  # noqa: N818 - a property of the message, not a failure
    """The bytes are not valid properties: a length exceeds them, or a type is unknown."""


class HeaderEntry(NamedTuple):
    """The position of one header, from its name to the end of its value."""

    name: bytes
    start: int
    value: int  # start of the value, after its type
    end: int
    kind: int


@dataclass(slots=True)
class ContentHeader:
    """The encoded properties of a message."""

    parts: dict[str, bytes]  # without the headers

    entries: list[HeaderEntry]
    table: bytes  # contains the entries; empty without headers

    @property
    def has_table(self) -> bool:
        """Whether there is a header table; it may be empty."""
        return "headers" in self.parts

    def text(self, name: str) -> str | None:
        """Return a short-string property; None if it is absent or not UTF-8."""
        part = self.parts.get(name)
        try:
            return None if part is None else part[1:].decode()
        except UnicodeDecodeError:
            return None

    def values(self, names: Collection[bytes]) -> dict[str, HeaderValue]:
        """Return the values of these headers; the first one if a name is repeated."""
        values: dict[str, HeaderValue] = {}
        for entry in self.entries:
            if entry.name in names:
                values.setdefault(entry.name.decode(), value(self.table, entry))
        return values

    def encode(
        self, *, drop: Collection[bytes] = (), replace: Mapping[bytes, bytes] | None = None,
        add: Mapping[bytes, bytes] | None = None, without: Collection[str] = (),
    ) -> bytes:
        """Encode the properties with headers dropped, replaced or added by name, `without` some properties."""
        replaced, added = replace or {}, add or {}
        parts = {name: part for name, part in self.parts.items() if name not in without}
        if added or self.has_table:
            pieces = [
                header(entry.name, replaced[entry.name]) if entry.name in replaced
                else self.table[entry.start : entry.end]
                for entry in self.entries if entry.name not in drop and entry.name not in added
            ]
            pieces += [header(name, encoded) for name, encoded in added.items()]
            table = b"".join(pieces)
            parts["headers"] = _LENGTH.pack(len(table)) + table
        flags = sum(_FLAG[name] for name in parts)
        return _FLAGS.pack(flags) + b"".join([parts[name] for name, _ in _PROPERTIES if name in parts])


class HeaderLocation(NamedTuple):
    """The position of the header table, including its length, and the message_id."""

    start: int  # 0 without a header table
    end: int
    message_id: bytes | None


def _unreadable(error: Exception) -> UnreadableContent:
    return UnreadableContent(f"{type(error).__name__}: {error}")


def locate(raw: bytes) -> HeaderLocation:
    """Find the headers and the message_id of a forwarded message. Raises UnreadableContent."""
    try:
        return _locate(raw)
    except (IndexError, struct.error) as error:
        raise _unreadable(error) from None


def _locate(raw: bytes) -> HeaderLocation:
    """Skip each property that is flagged as present; unrolled because it runs for every delayed message."""
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
        raise UnreadableContent("the lengths of the properties do not add up")
    return HeaderLocation(start, end, message_id)


def headers(table: bytes, most: int | None = None) -> list[HeaderEntry]:
    """Return the positions of the first `most` headers in a table that starts with its length."""
    try:
        return list(islice(_entries(table, _LENGTH.size, len(table)), most))
    except (IndexError, struct.error) as error:
        raise _unreadable(error) from None


def elements(array: bytes, most: int | None = None) -> list[HeaderEntry]:
    """Return the positions of the first `most` values in an array; their names are empty."""
    try:
        return list(islice(_elements(array, _LENGTH.size), most))
    except (IndexError, struct.error) as error:
        raise _unreadable(error) from None


def table(pieces: Sequence[bytes]) -> bytes:
    """Encode headers as a table that starts with its length."""
    return b"".join((_LENGTH.pack(sum(map(len, pieces))), *pieces))


def read(raw: bytes, most: int | None = None) -> ContentHeader:
    """Parse encoded properties with the first `most` headers. Raises UnreadableContent."""
    try:
        return _read(raw, most)
    except (IndexError, struct.error) as error:
        raise _unreadable(error) from None


def _read(raw: bytes, most: int | None) -> ContentHeader:
    [flags] = _FLAGS.unpack_from(raw)
    if flags & _MORE_FLAGS:
        raise UnreadableContent("unknown property flags")
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
            entries = list(islice(_entries(table, 0, len(table)), most))
        else:
            end = at + (FIXED_SIZES.get(name) or 1 + raw[at])
        parts[name] = raw[at:end]
        at = end
    if at != len(raw):
        raise UnreadableContent("the lengths of the properties do not add up")
    return ContentHeader(parts, entries, table)


def _entries(table: bytes, at: int, size: int) -> Iterator[HeaderEntry]:
    while at < size:
        name = at + 1
        end = name + table[at]
        kind, value = table[end], end + 1
        after = _end(table, kind, value)
        if after > size:
            raise UnreadableContent("a header exceeds the table")
        yield HeaderEntry(table[name:end], at, value, after, kind)
        at = after


def _elements(array: bytes, at: int) -> Iterator[HeaderEntry]:
    while at < len(array):
        kind, value = array[at], at + 1
        after = _end(array, kind, value)
        if after > len(array):
            raise UnreadableContent("a value exceeds its array")
        yield HeaderEntry(b"", at, value, after, kind)
        at = after


def _end(table: bytes, kind: int, at: int) -> int:
    if kind in _LENGTH_PREFIXED:
        return at + _LENGTH.size + int(_LENGTH.unpack_from(table, at)[0])
    size = _SIZES.get(kind)
    if size is None:
        raise UnreadableContent(f"unknown value type {chr(kind)!a}")
    return at + size


def value(table: bytes, entry: HeaderEntry) -> HeaderValue:
    """Return the value of a header."""
    kind, at = entry.kind, entry.value
    number = _NUMBERS.get(kind)
    if number is not None:
        decoded: int | float = number.unpack_from(table, at)[0]
        return decoded
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


def header(name: bytes, encoded: bytes) -> bytes:
    """Encode a header with an encoded value."""
    return bytes((len(name),)) + name + encoded


def number(whole: int) -> bytes:
    """Encode an integer as a signed 64-bit value, as RabbitMQ does."""
    return b"l" + struct.pack(">q", whole)


def text(content: str | bytes) -> bytes:
    """Encode a long string."""
    encoded = content if isinstance(content, bytes) else content.encode()
    return b"S" + _LENGTH.pack(len(encoded)) + encoded


def short(content: str) -> bytes:
    """Encode a short-string property."""
    encoded = content.encode()
    return bytes((len(encoded),)) + encoded
