"""Limits on the data that an endpoint may send in one exchange.

aiohttp bounds the header lines of one response and stops reading at a full body buffer. It does not bound interim
(1xx) responses, chunk extensions, trailers, TLS messages without data, the number of reads, or data after the end
of a response. An endpoint that sends these without end would keep the event loop busy for the whole timeout.
"""

import asyncio
import errno
import functools
import socket
from typing import Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

READ_BYTES = 16 * 1024  # per read; asyncio's own 256 KiB take too long to parse in one step
MAX_BYTES = 256 * 1024  # per exchange, TLS and framing included; the body that is kept is far smaller
MAX_READS = 1024  # per exchange
MAX_HEAD_BYTES = 64 * 1024  # headers of the final response and of all interim ones
MAX_INTERIM = 20
FREE_READS = 16  # reads without a pause
PAUSE_PER_READ = 0.001  # seconds; later reads wait longer, which merges small packets into fewer reads
MAX_PAUSE = 1.0
_FINAL = 200
_SWITCHING = 101
_recv, _recv_into = socket.socket.recv, socket.socket.recv_into
_data_received = ResponseHandler.data_received
_feed_data = ResponseHandler.feed_data


class ResponseLimitExceeded(aiohttp.ClientError, OSError):  # noqa: N818 - the endpoint's fault, not an error here
    """The endpoint sent more than one exchange may take; `message` says what."""

    def __init__(self, message: str) -> None:
        # An OSError, because asyncio logs anything else that a socket raises.
        super().__init__(errno.EMSGSIZE, message)
        self.message = message


class MalformedBody(aiohttp.ClientPayloadError):
    """The body is not HTTP; `message` says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class BoundedSocket(socket.socket):
    """A socket that receives a limited number of bytes and reads until `renew` is called, under TLS as well."""

    _bytes_left = MAX_BYTES
    _reads_left = MAX_READS

    def renew(self) -> None:
        """Start a new exchange."""
        self._bytes_left = MAX_BYTES
        self._reads_left = MAX_READS

    @property
    def received(self) -> tuple[int, int]:
        """Bytes and reads of this exchange."""
        return MAX_BYTES - self._bytes_left, MAX_READS - self._reads_left

    # These two and `data_received` run for every webhook: they avoid every unnecessary call.

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self._bytes_left <= 0 or self._reads_left <= 0:
            raise self._exceeded()
        data = _recv(self, min(size, READ_BYTES), flags)
        self._bytes_left -= len(data)
        self._reads_left -= 1
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        if self._bytes_left <= 0 or self._reads_left <= 0:
            raise self._exceeded()
        count = _recv_into(self, buffer, min(nbytes or len(buffer), READ_BYTES), flags)
        self._bytes_left -= count
        self._reads_left -= 1
        return count

    def _exceeded(self) -> ResponseLimitExceeded:
        if self._bytes_left <= 0:
            return ResponseLimitExceeded(f"more than {MAX_BYTES // 1024} KiB for one response")
        return ResponseLimitExceeded(f"its response in more than {MAX_READS} pieces")


def bounded_socket(info: tuple[Any, Any, Any, Any, Any]) -> BoundedSocket:
    """Make the socket for a connection: aiohttp's `socket_factory`."""
    made = BoundedSocket(*info[:3])
    made.setblocking(False)
    return made


class BoundedHandler(ResponseHandler):
    """aiohttp's protocol, with limits per exchange.

    Drops interim responses instead of queueing them, closes a connection that sends data after its response, fails
    a malformed body at once, and reads at a lower rate after the first few reads.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._socket: BoundedSocket | None = None
        self._begin()

    def _begin(self) -> None:
        self._interim = self._head = self._reads = 0
        self._final: aiohttp.StreamReader | None = None
        if self._socket is not None:
            self._socket.renew()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # asyncio gives a wrapper of the socket, and no public way to the socket itself.
        wrapped = getattr(transport.get_extra_info("socket"), "_sock", None)
        self._socket = wrapped if isinstance(wrapped, BoundedSocket) else None

    def set_response_params(self, **params: Any) -> None:
        """Start a new exchange: aiohttp calls this before each request."""
        self._begin()
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Queue a response that the parser has read, unless it is an interim one or comes after the final one."""
        message, content = data
        if self._final is not None:
            self.force_close()
        elif message.code < _FINAL and message.code != _SWITCHING:
            self._interim += 1
        else:
            self._final = content
            _feed_data(self, data, size)

    def data_received(self, data: bytes) -> None:
        if self._exception is not None:
            return
        if self._final is not None and data and self._final.is_eof():
            self._close()
            return
        _data_received(self, data)
        self._reads += 1
        if (error := self.exception()) is not None:
            self._fail_body(error)
        elif self._final is None or self._reads > FREE_READS or self._interim > MAX_INTERIM:
            self._check(len(data))

    def _check(self, received: int) -> None:
        if not received:
            return
        if self._final is None:
            self._head += received
        if self._interim > MAX_INTERIM:
            self._fail(ResponseLimitExceeded(f"more than {MAX_INTERIM} interim responses"))
        elif self._head > MAX_HEAD_BYTES:
            self._fail(ResponseLimitExceeded(f"more than {MAX_HEAD_BYTES // 1024} KiB of headers"))
        elif self._reads > FREE_READS and not (self._final is not None and self._final.is_eof()):
            self._pause()

    def connection_lost(self, exc: BaseException | None) -> None:
        if isinstance(exc, ResponseLimitExceeded):
            self._fail(exc)
        super().connection_lost(exc)

    def _fail_body(self, error: BaseException) -> None:
        """Report the parser's error to the reader of the body, which aiohttp leaves waiting for the timeout."""
        if self._final is not None and not self._final.is_eof() and self._final.exception() is None:
            self._final.set_exception(MalformedBody(str(getattr(error, "message", "") or type(error).__name__)))

    def _fail(self, error: ResponseLimitExceeded) -> None:
        if self._final is not None and not self._final.is_eof():
            self._final.set_exception(error)
        self.set_exception(error)
        self._close()

    def _close(self) -> None:
        """Close the connection; a response that is complete can still be read."""
        self.force_close()
        self._payload = self._parser = None  # otherwise their connection errors would replace ours
        if self.transport is not None:
            self.transport.abort()

    def _pause(self) -> None:
        transport = self.transport
        if transport is not None and not self._held():
            transport.pause_reading()
            self._loop.call_later(min(self._reads * PAUSE_PER_READ, MAX_PAUSE), self._resume, transport)

    def _resume(self, transport: asyncio.Transport) -> None:
        if self.transport is transport and not self._held():
            transport.resume_reading()

    def _held(self) -> bool:
        """Return whether aiohttp itself has paused reading, and will resume it."""
        return self._reading_paused or bool(getattr(self, "_buffer_paused", False))


class BoundedConnector(aiohttp.TCPConnector):
    """aiohttp's pool of connections, whose protocol is BoundedHandler."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = functools.partial(cast("type[ResponseHandler]", BoundedHandler), loop=self._loop)
