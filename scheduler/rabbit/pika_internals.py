"""The only file that touches what pika does not promise, and the check that this pika still has it.

What is used, why, and with which versions it was tried: docs/decisions/0009-reading.md.
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
# As in pyproject.toml; a test compares them.
TRIED = "pika>=1.3.2,!=1.4.0,<1.5"

# Methods of a connection, each with how many arguments it is given.
METHODS = {"_on_data_available": 1, "_read_frame": 0, "_process_frame": 1, "_output_marshaled_frames": 1}
# Attributes of a connection, each with its type while there is no socket.
ATTRIBUTES = {"_frame_buffer": bytes, "bytes_received": int, "_transport": type(None)}
CANCELLED, RECEIVE = "_cancelled", "_MAX_RECV_BYTES"
# Its encoding of frames, not private and not promised either; frames.py and reading.py use it too.
ENCODING = (
    (pika_frame, "decode_frame"), (pika_frame, "Header"), (pika_frame, "Method"), (pika_data, "encode_table"),
    (pika.BasicProperties, "decode"), (pika.BasicProperties, "encode"),
)
IMPLEMENTATION = "_impl_class"  # what a BlockingConnection is told to be made of


class ReadingConnection(SelectConnection):  # type: ignore[misc]  # pika's types are not all known
    """A SelectConnection whose deliveries to one consumer go straight to a handler."""

    deliveries: DeliveryParser | None = None
    _frame_buffer: bytes

    def write(self, chunks: Sequence[bytes]) -> None:
        """Send frames that are already encoded; only on the I/O thread."""
        self._output_marshaled_frames(chunks)

    def read_deliveries(
        self, channel: int, consumer_tag: str, handler: Handler, decode: Decode | None = None
    ) -> None:
        """From now on hand over what comes for this consumer; only on the I/O thread."""
        self.deliveries = DeliveryParser(channel, consumer_tag, self.params.frame_max or 131072, handler, decode)
        self._transport._MAX_RECV_BYTES = RECEIVE_BYTES  # noqa: SLF001 - pika's constant, for this connection alone

    def _on_data_available(self, data_in: bytes) -> None:
        """Take what came from the socket: pika calls this."""
        if self.deliveries is None:
            super()._on_data_available(data_in)
            return
        data = self._frame_buffer + data_in if self._frame_buffer else data_in
        at = 0
        while at < len(data):
            after = NOT_OURS if self.deliveries is None else self.deliveries.read(data, at)
            if after == NOT_OURS:
                self._hand_over()  # what came before it, which it may be about; it may also end the consumer
                after = self._by_pika(data, at)
            if after == MORE:
                break
            at = after
        self._frame_buffer = data[at:]
        self.bytes_received += at  # what the heartbeat goes by
        self._hand_over()

    def _hand_over(self) -> None:
        if self.deliveries is not None:
            self.deliveries.hand_over()

    def _by_pika(self, data: bytes, at: int) -> int:
        """Have pika take one frame and return where it ends, or MORE."""
        end = frame_end(data, at)
        if end != MORE:
            self._process_frame(_decoded(data[at:end]))
        return end

    def _read_frame(self) -> tuple[int, pika_frame.Frame | None]:
        """Take the first frame of the buffer: pika calls this while there is no consumer of ours."""
        data = self._frame_buffer
        end = frame_end(data)
        # The protocol's own header, from a broker of another version, is no frame at all.
        if end == MORE or data.startswith(b"AMQP"):
            return pika_frame.decode_frame(data)  # type: ignore[no-any-return]
        return end, _decoded(data[:end])


class RawProperties(pika.BasicProperties):  # type: ignore[misc]  # pika's types are not all known
    """Properties that are written as these bytes."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self.raw = raw

    def encode(self) -> list[bytes]:
        """Return them: pika calls this."""
        return [self.raw]


def blocking(parameters: pika.ConnectionParameters) -> pika.BlockingConnection:
    """Open a connection that reads whatever comes: all properties have their bytes as `raw`."""
    return open_connection(parameters, **{IMPLEMENTATION: ReadingConnection})


def frame_max(connection: pika.BlockingConnection) -> int:
    """Return the longest frame that was agreed with the broker."""
    agreed = getattr(getattr(connection, "_impl", None), "params", None)
    return int(getattr(agreed, "frame_max", None) or 131072)


def forget_cancelled(channel: Channel, consumer_tag: str) -> None:
    """Have pika deliver what is still on its way to a consumer that is being cancelled."""
    channel._cancelled.discard(consumer_tag)  # noqa: SLF001 - else pika gives it back to the queue


def _decoded(data: bytes) -> pika_frame.Frame:
    try:
        found = pika_frame.decode_frame(data)[1]
    except Exception as error:
        header = unread_header(data)
        if header is None:
            raise
        found = pika_frame.Header(*header, UnreadableProperties.because(error))
    if is_header(data):
        found.properties.raw = unread_properties(data)
    return found


def check() -> None:
    """Raise Misconfigured unless this pika has all that is used here and behaves as those that were tried."""
    problems = [*_missing()]
    if not problems:
        problems = [*_misbehaving()]
    if problems:
        raise Misconfigured(
            f"pika {pika.__version__} is not like those this program was tried with: {'; '.join(problems)}. "
            f"Install one of them: pip install '{TRIED}'"
        )


def _missing() -> Iterator[str]:
    for name, arguments in METHODS.items():
        method = getattr(SelectConnection, name, None)
        if method is None:
            yield f"SelectConnection.{name} is missing"
        elif not _takes(method, 1 + arguments):
            yield f"SelectConnection.{name} takes other arguments"
    module = sys.modules.get("pika.adapters.utils.io_services_utils")  # SelectConnection needs it
    transport = getattr(module, "_AsyncTransportBase", None)
    if not isinstance(getattr(transport, RECEIVE, None), int):
        yield f"the transport's {RECEIVE} is missing"
    if IMPLEMENTATION not in inspect.signature(pika.BlockingConnection).parameters:
        yield f"BlockingConnection takes no {IMPLEMENTATION}"
    for home, name in ENCODING:
        if not hasattr(home, name):
            yield f"{home.__name__}.{name} is missing"


def _takes(method: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    return True


def _misbehaving() -> Iterator[str]:
    """Try without a socket what is used with one."""
    try:
        connection = _Unconnected()
        try:
            yield from connection.problems()
        finally:
            connection.ioloop.close()
    except Exception as error:  # noqa: BLE001 - whatever a pika that nobody tried may do
        yield f"{type(error).__name__}: {error}"


class _Unconnected(ReadingConnection):
    """Keeps the frames that pika would act upon."""

    def __init__(self) -> None:
        super().__init__(internal_connection_workflow=False)
        self.frames: list[pika_frame.Frame] = []

    def _process_frame(self, frame_value: pika_frame.Frame) -> None:
        self.frames.append(frame_value)

    def problems(self) -> Iterator[str]:
        for name, kind in ATTRIBUTES.items():
            if not isinstance(vars(self).get(name, NotImplemented), kind):
                yield f"SelectConnection.{name} is no {kind.__name__}"
                return
        if not isinstance(getattr(Channel(self, 1, None), CANCELLED, None), set):
            yield f"Channel.{CANCELLED} is no set"

        header = pika_frame.Header(1, 5, pika.BasicProperties(message_id="m")).marshal()
        self._on_data_available(header[:9])
        self._on_data_available(header[9:])
        if [(each.body_size, each.properties.message_id) for each in self.frames] != [(5, "m")]:
            yield "SelectConnection._on_data_available does not read by _read_frame and act by _process_frame"
        if (self.bytes_received, self._frame_buffer) != (len(header), b""):
            yield "SelectConnection.bytes_received and _frame_buffer do not follow what was read"

        written: list[bytes] = []
        self._transport = SimpleNamespace(write=written.append)
        self.write([header])
        if written != [header]:
            yield "SelectConnection._output_marshaled_frames does not write to _transport"
