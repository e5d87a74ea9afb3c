"""Close connections whose client sends its request, or reads its response, too slowly or not at all."""

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from scheduler.api.request_middleware import CLOSE_CONNECTION, IMPORT_PATH

HEAD_SECONDS = 10.0  # for the head of a request, from its first byte or from the connection's start
MAX_WAITING = 5_000  # connections without a complete head; one more closes the oldest
MAX_HEAD_BYTES = 65_536
MAX_REQUEST_BYTES = 16_000_000  # with the framing of the body; the middleware limits the body itself
MAX_IMPORT_BYTES = 48_000_000  # the same for an import
UNREAD_SECONDS = 20.0  # for a client to read what fills the write buffer, or the rest when the connection closes


class TimeoutProtocol(HttpToolsProtocol):
    """uvicorn's protocol with timeouts for heads and responses; the middleware times bodies."""

    _waiting: ClassVar[OrderedDict["TimeoutProtocol", None]] = OrderedDict()
    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _received = 0  # bytes since the last complete head

    def connection_made(self, transport: Any) -> None:
        """Start the time for the first head."""
        super().connection_made(transport)
        self._await_head()

    def on_message_begin(self) -> None:
        """Pass a function to the middleware that closes the connection."""
        super().on_message_begin()
        self.scope[CLOSE_CONNECTION] = self._abort  # type: ignore[literal-required]

    def data_received(self, data: bytes) -> None:
        """Parse data; the first byte of a request starts the time for its head."""
        before = self.cycle
        if self._head_timer is None and (before is None or before.response_complete):
            self._await_head()
        self._received += len(data)
        super().data_received(data)
        if self.cycle is not before:
            self._received = 0
            self._end_head_timer()
        elif self.transport.is_closing():
            self._await_rest()
        elif before is not None and not before.response_complete:
            if self._received > (MAX_IMPORT_BYTES if self.scope["path"] == IMPORT_PATH else MAX_REQUEST_BYTES):
                self._abort()
        elif before is not None and before.more_body:
            self.transport.close()  # the response was sent without the rest of the body, which may be endless
            self._await_rest()
        elif self._received > MAX_HEAD_BYTES:
            self.send_400_response("The head of the request is too long.")
            self._await_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._end_head_timer()
        self._end_read_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the time for the client to read: the write buffer is full."""
        super().pause_writing()
        self._await_read()

    def resume_writing(self) -> None:
        """Continue writing: the client has read almost all of the buffer."""
        super().resume_writing()
        self._end_read_timer()

    def on_response_complete(self) -> None:
        """Start the next request; if the connection closes instead, the time for the client to read the rest."""
        super().on_response_complete()
        self._await_rest()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; the client has had enough time to read the last response."""
        if self.transport.get_write_buffer_size():
            self._abort()
        else:
            super().timeout_keep_alive_handler()

    def _await_rest(self) -> None:
        if self.transport.is_closing() and self.transport.get_write_buffer_size() and self._read_timer is None:
            self._await_read()

    def _await_read(self) -> None:
        self._end_read_timer()
        self._read_timer = self.loop.call_later(UNREAD_SECONDS, self._abort)

    def _end_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._abort)
        self._waiting[self] = None
        if len(self._waiting) > MAX_WAITING:
            next(iter(self._waiting))._abort()  # noqa: SLF001 - our own class

    def _end_head_timer(self) -> None:
        self._waiting.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _abort(self) -> None:
        self._end_head_timer()
        self.transport.abort()
