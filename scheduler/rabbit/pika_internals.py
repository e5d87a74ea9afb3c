"""The only module that uses pika's internals, and a check that the installed pika still has them.

docs/decisions/0009-reading.md lists the internals, the reasons and the tested versions.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pika
from pika import data as pika_data
from pika import frame as pika_frame
from pika.adapters.select_connection import SelectConnection
from pika.channel import Channel

from scheduler.domain.errors import Misconfigured
from scheduler.rabbit.address import open_connection
from scheduler.rabbit.delivery_parser import (
    MORE,
    NOT_OURS,
    Decode,
    DeliveryParser,
    Handler,
    UnreadableProperties,
    frame_end,
    is_header,
    unread_header,
    unread_properties,
)

RECEIVE_BYTES = 64 * 1024
# A test compares it with pyproject.toml.
TESTED = "pika>=1.3.2,!=1.4.0,<1.5"

# Methods of a connection, with the number of their arguments.
METHODS = {"_on_data_available": 1, "_read_frame": 0, "_process_frame": 1, "_output_marshaled_frames": 1}
# Attributes of a connection, with their types before it has a socket.
ATTRIBUTES = {"_frame_buffer": bytes, "bytes_received": int, "_transport": type(None)}
CANCELLED, RECEIVE = "_cancelled", "_MAX_RECV_BYTES"
# Functions for frames, neither private nor documented; frames.py and delivery_parser.py use them too.
ENCODING = (
    (pika_frame, "decode_frame"), (pika_frame, "Header"), (pika_frame, "Method"), (pika_data, "encode_table"),
    (pika.BasicProperties, "decode"), (pika.BasicProperties, "encode"),
)
IMPLEMENTATION = "_impl_class"  # argument of BlockingConnection: the class of its underlying connection


class ReadingConnection(SelectConnection):  # type: ignore[misc]  # pika's types are not all known
    """A SelectConnection that passes the deliveries to one consumer straight to a handler."""

    deliveries: DeliveryParser | None = None
    _frame_buffer: bytes

    def write(self, chunks: Sequence[bytes]) -> None:
        """Send frames that are already encoded; only on the I/O thread."""
        self._output_marshaled_frames(chunks)

    def read_deliveries(
        self, channel: int, consumer_tag: str, handler: Handler, decode: Decode | None = None
    ) -> None:
        """Pass deliveries to this consumer to `handler` from now on; only on the I/O thread."""
        self.deliveries = DeliveryParser(channel, consumer_tag, self.params.frame_max or 131072, handler, decode)
        self._transport._MAX_RECV_BYTES = RECEIVE_BYTES  # noqa: SLF001 - pika's constant, for this connection alone

    def _on_data_available(self, data_in: bytes) -> None:
        """Process received bytes; pika calls this."""
        if self.deliveries is None:
            super()._on_data_available(data_in)
            return
        data = self._frame_buffer + data_in if self._frame_buffer else data_in
        at = 0
        while at < len(data):
            after = NOT_OURS if self.deliveries is None else self.deliveries.read(data, at)
            if after == NOT_OURS:
                self._flush()  # pass earlier deliveries first: the frame may concern them, or end the consumer
                after = self._process_with_pika(data, at)
            if after == MORE:
                break
            at = after
        self._frame_buffer = data[at:]
        self.bytes_received += at  # pika's heartbeat check uses it
        self._flush()

    def _flush(self) -> None:
        if self.deliveries is not None:
            self.deliveries.flush()

    def _process_with_pika(self, data: bytes, at: int) -> int:
        """Process one frame with pika and return its end, or MORE."""
        end = frame_end(data, at)
        if end != MORE:
            self._process_frame(_decode_frame(data[at:end]))
        return end

    def _read_frame(self) -> tuple[int, pika_frame.Frame | None]:
        """Return the first frame of the buffer; pika calls this while there is no parser."""
        data = self._frame_buffer
        end = frame_end(data)
        # A broker of another protocol version sends a protocol header, which is not a frame.
        if end == MORE or data.startswith(b"AMQP"):
            return pika_frame.decode_frame(data)  # type: ignore[no-any-return]
        return end, _decode_frame(data[:end])


class RawProperties(pika.BasicProperties):  # type: ignore[misc]  # pika's types are not all known
    """Properties that are already encoded."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self.raw = raw

    def encode(self) -> list[bytes]:
        """Return the encoded properties; pika calls this."""
        return [self.raw]


def blocking(parameters: pika.ConnectionParameters) -> pika.BlockingConnection:
    """Open a connection that accepts undecodable properties; all properties have their bytes as `raw`."""
    return open_connection(parameters, **{IMPLEMENTATION: ReadingConnection})


def frame_max(connection: pika.BlockingConnection) -> int:
    """Return the negotiated maximum frame size."""
    agreed = getattr(getattr(connection, "_impl", None), "params", None)
    return int(getattr(agreed, "frame_max", None) or 131072)


def forget_cancelled(channel: Channel, consumer_tag: str) -> None:
    """Make pika deliver messages that are in flight to a consumer during its cancellation."""
    channel._cancelled.discard(consumer_tag)  # noqa: SLF001 - otherwise pika requeues them


def _decode_frame(data: bytes) -> pika_frame.Frame:
    try:
        frame = pika_frame.decode_frame(data)[1]
    except Exception as error:
        header = unread_header(data)
        if header is None:
            raise
        frame = pika_frame.Header(*header, UnreadableProperties.from_error(error))
    if is_header(data):
        frame.properties.raw = unread_properties(data)
    return frame


def check() -> None:
    """Raise Misconfigured unless the installed pika has the internals used here and they behave as tested."""
    problems = [*_missing()]
    if not problems:
        problems = [*_misbehaving()]
    if problems:
        raise Misconfigured(
            f"pika {pika.__version__} differs from the tested versions: {'; '.join(problems)}. "
            f"Install a tested version: pip install '{TESTED}'"
        )


def _missing() -> Iterator[str]:
    for name, arguments in METHODS.items():
        method = getattr(SelectConnection, name, None)
        if method is None:
            yield f"SelectConnection.{name} is missing"
        elif not _accepts(method, 1 + arguments):
            yield f"SelectConnection.{name} has different parameters"
    module = sys.modules.get("pika.adapters.utils.io_services_utils")  # SelectConnection needs it
    transport = getattr(module, "_AsyncTransportBase", None)
    if not isinstance(getattr(transport, RECEIVE, None), int):
        yield f"the transport's {RECEIVE} is missing"
    if IMPLEMENTATION not in inspect.signature(pika.BlockingConnection).parameters:
        yield f"BlockingConnection has no parameter {IMPLEMENTATION}"
    for owner, name in ENCODING:
        if not hasattr(owner, name):
            yield f"{owner.__name__}.{name} is missing"


def _accepts(method: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    return True


def _misbehaving() -> Iterator[str]:
    """Test the internals without a socket."""
    try:
        connection = _Unconnected()
        try:
            yield from connection.problems()
        finally:
            connection.ioloop.close()
    except Exception as error:  # noqa: BLE001 - an untested pika may raise anything
        yield f"{type(error).__name__}: {error}"


class _Unconnected(ReadingConnection):
    """Records the frames that pika would process."""

    def __init__(self) -> None:
        super().__init__(internal_connection_workflow=False)
        self.frames: list[pika_frame.Frame] = []

    def _process_frame(self, frame_value: pika_frame.Frame) -> None:
        self.frames.append(frame_value)

    def problems(self) -> Iterator[str]:
        for name, kind in ATTRIBUTES.items():
            if not isinstance(vars(self).get(name, NotImplemented), kind):
                yield f"SelectConnection.{name} is not of type {kind.__name__}"
                return
        if not isinstance(getattr(Channel(self, 1, None), CANCELLED, None), set):
            yield f"Channel.{CANCELLED} is not a set"

        header = pika_frame.Header(1, 5, pika.BasicProperties(message_id="m")).marshal()
        self._on_data_available(header[:9])
        self._on_data_available(header[9:])
        if [(frame.body_size, frame.properties.message_id) for frame in self.frames] != [(5, "m")]:
            yield "SelectConnection._on_data_available does not use _read_frame and _process_frame"
        if (self.bytes_received, self._frame_buffer) != (len(header), b""):
            yield "SelectConnection.bytes_received and _frame_buffer are wrong after a read"

        written: list[bytes] = []
        self._transport = SimpleNamespace(write=written.append)
        self.write([header])
        if written != [header]:
            yield "SelectConnection._output_marshaled_frames does not write to _transport"
