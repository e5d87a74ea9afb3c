"""A pika connection that reads deliveries whole, many from one look at the socket.

pika asks the socket for 4 KB at a time, copies what is left of them for every frame, and hands each frame through
several layers; a delivery is three frames. That is most of what a consumer would do
(docs/decisions/0009-reading.md). Here a delivery that lies whole in the buffer is read where it lies. All else,
from the handshake to a body in several frames, goes pika's own way.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pika
from pika import spec
from pika.adapters.select_connection import SelectConnection
from pika.frame import Header, decode_frame

RECEIVE_BYTES = 64 * 1024

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
    read: Any = None  # what the inbox's reader made of it

    @property
    def deliveries_before(self) -> int:
        """How often it was delivered before without being acknowledged, as far as the broker tells."""
        headers = self.properties.headers
        count = headers.get("x-delivery-count") if headers else None
        return count if isinstance(count, int) else int(self.redelivered)


Handler = Callable[[Delivery], None]


class Deliveries:
    """Finds what comes for one consumer among the bytes of a connection."""

    def __init__(self, channel: int, consumer_tag: str, frame_max: int, handler: Handler) -> None:
        name = consumer_tag.encode()
        self._head = struct.pack(">BH", spec.FRAME_METHOD, channel)
        self._mark = _DELIVER + bytes((len(name),)) + name
        self._most = frame_max - _OVERHEAD
        self._handler = handler

    def read(self, data: bytes, at: int) -> int:
        """Hand over the delivery that begins at `at` and return where it ends, or MORE, or NOT_OURS."""
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
        properties = _common_properties(raw) if len(raw) <= _COMMON else _properties(raw)
        content = data[body + _FRAME.size : end - 1]
        self._handler(Delivery(tag, key, properties, content, bool(redelivered), end - at))
        return end


class ReadingConnection(SelectConnection):  # type: ignore[misc]  # pika's types are not all known
    """A SelectConnection whose deliveries to one consumer go straight to a handler."""

    deliveries: Deliveries | None = None
    _frame_buffer: bytes

    def read_deliveries(self, channel: int, consumer_tag: str, handler: Handler) -> None:
        """From now on hand over what comes for this consumer; only on the I/O thread."""
        self.deliveries = Deliveries(channel, consumer_tag, self.params.frame_max or 131072, handler)
        # pika's own constant, for this connection alone; should it ever be called otherwise, we only read less.
        self._transport._MAX_RECV_BYTES = RECEIVE_BYTES  # noqa: SLF001

    def _on_data_available(self, data_in: bytes) -> None:
        """Take what came from the socket: pika calls this."""
        if self.deliveries is None:
            super()._on_data_available(data_in)
            return
        data = self._frame_buffer + data_in if self._frame_buffer else data_in
        at = 0
        while at < len(data):
            # Any of them may end the consumer.
            after = NOT_OURS if self.deliveries is None else self.deliveries.read(data, at)
            if after == NOT_OURS:
                after = self._by_pika(data, at)
            if after == MORE:
                break
            at = after
        self._frame_buffer = data[at:]
        self.bytes_received += at  # what the heartbeat goes by

    def _by_pika(self, data: bytes, at: int) -> int:
        """Have pika take one frame and return where it ends, or MORE."""
        if len(data) < at + _FRAME.size:
            return MORE
        end = at + int(_FRAME.unpack_from(data, at)[2]) + _OVERHEAD
        if len(data) < end:
            return MORE
        self._process_frame(_frame(data[at:end]))
        return end

    def _read_frame(self) -> tuple[int, pika.frame.Frame | None]:
        """Take the first frame of the buffer: pika calls this while there is no consumer of ours."""
        data = self._frame_buffer
        if len(data) < _FRAME.size:
            return 0, None
        end = int(_FRAME.unpack_from(data)[2]) + _OVERHEAD
        # The protocol's own header, from a broker of another version, is no frame at all.
        if len(data) < end or data.startswith(b"AMQP"):
            return decode_frame(data)  # type: ignore[no-any-return]
        return end, _frame(data[:end])


class UnreadableProperties(pika.BasicProperties):  # type: ignore[misc]  # pika's types are not all known
    """Stands for what pika cannot read, such as a header with a timestamp in milliseconds: a year beyond 9999."""

    def __init__(self, problem: str) -> None:
        super().__init__()
        self.problem = problem


def _frame(data: bytes) -> pika.frame.Frame:
    try:
        return decode_frame(data)[1]
    except Exception as error:
        kind, channel, _ = _FRAME.unpack_from(data)
        if kind != spec.FRAME_HEADER or data[-1] != spec.FRAME_END:
            raise
        body_size = _HEADER.unpack_from(data)[-1]
        return Header(channel, body_size, UnreadableProperties(_line(error)))


def _properties(raw: bytes) -> pika.BasicProperties:
    properties = pika.BasicProperties()
    try:
        properties.decode(raw)
    except Exception as error:  # noqa: BLE001 - one message's own affair, whatever a host put into it
        return UnreadableProperties(_line(error))
    return properties


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


# Many a host sends the same with each message; nobody changes them.
_common_properties = lru_cache(maxsize=256)(_properties)
