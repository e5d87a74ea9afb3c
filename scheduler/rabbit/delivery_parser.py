"""Deliveries among the bytes of a connection, each read whole where it lies.

pika asks the socket for 4 KB at a time, copies what is left of them for every frame, and hands each frame through
several layers; a delivery is three frames. That is most of what a consumer would do
(docs/decisions/0009-reading.md). Here a delivery that lies whole in the buffer is read at once. All else, from the
handshake to a body in several frames, goes pika's own way; pika_internals.py is where the two meet.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pika
from pika import spec

MORE = -1
NOT_OURS = 0
_FRAME = struct.Struct(">BHI")
_HEADER = struct.Struct(">BHIHHQ")
_TAG = struct.Struct(">QB")
_DELIVER = struct.pack(">I", spec.Basic.Deliver.INDEX)
_OVERHEAD = 8  # of a frame: its head and its end mark
_COMMON = 512  # bytes; longer properties are not likely to come again


@dataclass(slots=True)
class Delivery:
    """One command as it came."""

    tag: int
    routing_key: str
    properties: pika.BasicProperties
    body: bytes
    redelivered: bool
    size: int  # in bytes, its properties included
    raw: bytes = b""  # its properties as they came
    read: Any = None  # what the inbox's reader made of it
    redeliveries: int = 0  # as counted by us, of a queue that doesn't count them
    alone: int = 0  # how often it was handled by itself

    @property
    def deliveries_before(self) -> int:
        """How often it was delivered before without being acknowledged, as far as the broker tells."""
        if self.redeliveries:
            return self.redeliveries
        headers = self.properties.headers
        count = headers.get("x-delivery-count") if headers else None
        return count if isinstance(count, int) else int(self.redelivered)

    @property
    def counted_by_queue(self) -> bool:
        """Whether the queue counts its deliveries, as quorum queues do."""
        headers = self.properties.headers
        return bool(headers) and isinstance(headers.get("x-delivery-count"), int)


Handler = Callable[[list[Delivery]], None]
Decode = Callable[[bytes], pika.BasicProperties]


class DeliveryParser:
    """Finds what comes for one consumer among the bytes of a connection."""

    def __init__(
        self, channel: int, consumer_tag: str, frame_max: int, handler: Handler, decode: Decode | None = None
    ) -> None:
        """Hand over deliveries, those that came together at once.

        `decode` makes of their properties what the handler needs, all by default.
        """
        name = consumer_tag.encode()
        self._decode = decode or decoded
        self._head = struct.pack(">BH", spec.FRAME_METHOD, channel)
        self._mark = _DELIVER + bytes((len(name),)) + name
        self._most = frame_max - _OVERHEAD
        self._handler = handler
        self._found: list[Delivery] = []

    def hand_over(self) -> None:
        """Hand over what was read since the last time."""
        if self._found:
            found, self._found = self._found, []
            self._handler(found)

    def read(self, data: bytes, at: int) -> int:
        """Read the delivery that begins at `at` and return where it ends, or MORE, or NOT_OURS."""
        method = at + _FRAME.size
        if not (data.startswith(self._head, at) and data.startswith(self._mark, method)):
            return NOT_OURS
        header = at + int(_FRAME.unpack_from(data, at)[2]) + _OVERHEAD
        if len(data) < header + _HEADER.size:
            return MORE
        kind, _, header_size, _, _, body_size = _HEADER.unpack_from(data, header)
        if body_size > self._most:
            return NOT_OURS  # it comes in several frames: pika gathers them
        body = header + header_size + _OVERHEAD
        end = int(body + body_size + _OVERHEAD if body_size else body)
        if len(data) < end:
            return MORE
        if (
            kind != spec.FRAME_HEADER
            or not data[header - 1] == data[body - 1] == data[end - 1] == spec.FRAME_END
            or (body_size and _FRAME.unpack_from(data, body)[2] != body_size)
        ):
            return NOT_OURS
        where = method + len(self._mark)
        tag, redelivered = _TAG.unpack_from(data, where)
        where += _TAG.size
        where += 1 + data[where]  # the exchange
        try:
            key = data[where + 1 : where + 1 + data[where]].decode()
        except UnicodeDecodeError:
            return NOT_OURS
        raw = data[header + _HEADER.size : body - 1]
        properties = self._decode(raw)
        content = data[body + _FRAME.size : end - 1]
        self._found.append(Delivery(tag, key, properties, content, bool(redelivered), end - at, raw))
        return end


def frame_end(data: bytes, at: int = 0) -> int:
    """Return where the frame that begins at `at` ends, or MORE."""
    if len(data) < at + _FRAME.size:
        return MORE
    end = at + int(_FRAME.unpack_from(data, at)[2]) + _OVERHEAD
    return end if len(data) >= end else MORE


class UnreadableProperties(pika.BasicProperties):  # type: ignore[misc]  # pika's types are not all known
    """Stands for what pika cannot read, such as a header with a timestamp in milliseconds: a year beyond 9999."""

    def __init__(self, problem: str) -> None:
        super().__init__()
        self.problem = problem

    @classmethod
    def because(cls, error: Exception) -> "UnreadableProperties":
        """Say in one line what pika stumbled over."""
        return cls(f"{type(error).__name__}: {error}"[:200])


def unread_header(data: bytes) -> tuple[int, int] | None:
    """Return channel and body size of a whole header frame, whatever its properties are; None for any other."""
    if not is_header(data):
        return None
    _, channel, _, _, _, body_size = _HEADER.unpack_from(data)
    return channel, body_size


def is_header(data: bytes) -> bool:
    """Tell whether these bytes are a whole header frame."""
    return bool(data[0] == spec.FRAME_HEADER and data[-1] == spec.FRAME_END)


def unread_properties(data: bytes) -> bytes:
    """Return the properties of a whole header frame as they came."""
    return data[_HEADER.size : -1]


def as_bytes(text: str | bytes) -> bytes:
    """Return a short text as it came: what is no UTF-8 pika leaves as it is."""
    return text if isinstance(text, bytes) else text.encode()


def _properties(raw: bytes) -> pika.BasicProperties:
    properties = pika.BasicProperties()
    try:
        properties.decode(raw)
    except Exception as error:  # noqa: BLE001 - one message's own affair, whatever a host put into it
        return UnreadableProperties.because(error)
    return properties


# Many a host sends the same with each message; nobody changes them.
_common_properties = lru_cache(maxsize=256)(_properties)


def decoded(raw: bytes) -> pika.BasicProperties:
    """Return the properties that these bytes are."""
    return _common_properties(raw) if len(raw) <= _COMMON else _properties(raw)


NOTHING = pika.BasicProperties()
_HAS_HEADERS = spec.BasicProperties.FLAG_HEADERS >> 8  # in the first byte


def undecoded(raw: bytes) -> pika.BasicProperties:
    """Return nothing but what the queue itself has written: for those who read the bytes."""
    return decoded(raw) if b"x-delivery-count" in raw else NOTHING


def headers_alone(raw: bytes) -> pika.BasicProperties:
    """Return the properties of a message with headers, and of any other nothing: for those who look at no more."""
    return decoded(raw) if raw[0] & _HAS_HEADERS else NOTHING
