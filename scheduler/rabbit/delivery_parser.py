"""Parse deliveries directly from the bytes of a connection.

pika reads 4 KB at a time from the socket, copies the rest of the buffer for every frame, and passes each frame
through several layers. A delivery has three frames, so this would be most of a consumer's work
(docs/decisions/0009-reading.md). A complete delivery in the buffer is parsed at once here; pika parses the rest,
from the handshake to a body in several frames; pika_internals.py connects the two.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pika
from pika import spec

from scheduler.rabbit.heavy_headers import read_heavy

MORE = -1
NOT_OURS = 0
_FRAME = struct.Struct(">BHI")
_HEADER = struct.Struct(">BHIHHQ")
_TAG = struct.Struct(">QB")
_DELIVER = struct.pack(">I", spec.Basic.Deliver.INDEX)
_OVERHEAD = 8  # bytes of a frame around its payload: header and end mark
_MAX_CACHED = 512  # bytes; longer properties are unlikely to repeat


@dataclass(slots=True)
class Delivery:
    """A message from a queue."""

    tag: int
    routing_key: str
    properties: pika.BasicProperties
    body: bytes
    redelivered: bool
    size: int  # bytes, including properties
    raw: bytes = b""  # encoded properties
    read: Any = None  # the result of the consumer's reader
    redeliveries: int = 0  # counted by us if the queue does not
    alone: int = 0  # times that it was handled alone

    @property
    def deliveries_before(self) -> int:
        """The number of earlier deliveries without an acknowledgement, as far as it is known."""
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
    """Parses the deliveries to one consumer from the bytes of a connection."""

    def __init__(
        self, channel: int, consumer_tag: str, frame_max: int, handler: Handler, decode: Decode | None = None
    ) -> None:
        """Pass deliveries to `handler` in batches; `decode` decodes the properties it needs, by default all."""
        name = consumer_tag.encode()
        self._decode = decode or decoded
        self._head = struct.pack(">BH", spec.FRAME_METHOD, channel)
        self._mark = _DELIVER + bytes((len(name),)) + name
        self._max_payload = frame_max - _OVERHEAD
        self._handler = handler
        self._deliveries: list[Delivery] = []

    def flush(self) -> None:
        """Pass the parsed deliveries to the handler."""
        if self._deliveries:
            deliveries, self._deliveries = self._deliveries, []
            self._handler(deliveries)

    def read(self, data: bytes, at: int) -> int:
        """Parse the delivery at `at` and return its end, MORE or NOT_OURS."""
        method = at + _FRAME.size
        if not (data.startswith(self._head, at) and data.startswith(self._mark, method)):
            return NOT_OURS
        header = at + int(_FRAME.unpack_from(data, at)[2]) + _OVERHEAD
        if len(data) < header + _HEADER.size:
            return MORE
        kind, _, header_size, _, _, body_size = _HEADER.unpack_from(data, header)
        if body_size > self._max_payload:
            return NOT_OURS  # in several frames: pika joins them
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
        position = method + len(self._mark)
        tag, redelivered = _TAG.unpack_from(data, position)
        position += _TAG.size
        position += 1 + data[position]  # the exchange
        try:
            key = data[position + 1 : position + 1 + data[position]].decode()
        except UnicodeDecodeError:
            return NOT_OURS
        raw = data[header + _HEADER.size : body - 1]
        properties = self._decode(raw)
        content = data[body + _FRAME.size : end - 1]
        self._deliveries.append(Delivery(tag, key, properties, content, bool(redelivered), end - at, raw))
        return end


def frame_end(data: bytes, at: int = 0) -> int:
    """Return the end of the frame at `at`, or MORE."""
    if len(data) < at + _FRAME.size:
        return MORE
    end = at + int(_FRAME.unpack_from(data, at)[2]) + _OVERHEAD
    return end if len(data) >= end else MORE


class UnreadableProperties(pika.BasicProperties):  # type: ignore[misc]  # pika's types are not all known
    """Properties that pika cannot decode, such as a timestamp in milliseconds, with a year beyond 9999."""

    def __init__(self, problem: str) -> None:
        super().__init__()
        self.problem = problem

    @classmethod
    def from_error(cls, error: Exception) -> "UnreadableProperties":
        """Describe pika's error in one line."""
        return cls(f"{type(error).__name__}: {error}"[:200])


def unread_header(data: bytes) -> tuple[int, int] | None:
    """Return channel and body size of a complete header frame, valid or not; None for other frames."""
    if not is_header(data):
        return None
    _, channel, _, _, _, body_size = _HEADER.unpack_from(data)
    return channel, body_size


def is_header(data: bytes) -> bool:
    """Return whether these bytes are a complete header frame."""
    return bool(data[0] == spec.FRAME_HEADER and data[-1] == spec.FRAME_END)


def unread_properties(data: bytes) -> bytes:
    """Return the encoded properties of a complete header frame."""
    return data[_HEADER.size : -1]


def as_bytes(text: str | bytes) -> bytes:
    """Return the bytes of a short string; pika decodes it only if it is UTF-8."""
    return text if isinstance(text, bytes) else text.encode()


def _properties(raw: bytes) -> pika.BasicProperties:
    properties = pika.BasicProperties()
    try:
        properties.decode(raw)
    except Exception as error:  # noqa: BLE001 - any error concerns only this message
        return UnreadableProperties.from_error(error)
    return properties


# Many hosts repeat the same properties. The cached objects are never modified.
_common_properties = lru_cache(maxsize=256)(_properties)


def decoded(raw: bytes) -> pika.BasicProperties:
    """Decode properties."""
    return _common_properties(raw) if len(raw) <= _MAX_CACHED else read_heavy(raw) or _properties(raw)


NOTHING = pika.BasicProperties()
_HAS_HEADERS = spec.BasicProperties.FLAG_HEADERS >> 8  # in the first byte


def undecoded(raw: bytes) -> pika.BasicProperties:
    """Decode properties only if they have a delivery count, for callers that parse the bytes."""
    return decoded(raw) if b"x-delivery-count" in raw else NOTHING


def decoded_if_headers(raw: bytes) -> pika.BasicProperties:
    """Decode properties only if they have headers, for callers that need nothing else."""
    return decoded(raw) if raw[0] & _HAS_HEADERS else NOTHING
