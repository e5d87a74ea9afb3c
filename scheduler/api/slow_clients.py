"""Connections that have no patience with clients who send a byte a second, and bounds to what one may send."""

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0  # for the head of a request, from its first byte or from the connection on
MOST_WAITING = 5_000  # connections whose request is not there yet; beyond, the one that waits for longest goes
MOST_HEAD_BYTES = 65_536
MOST_BYTES = 16_000_000  # of one request, with all that frames its body: a body is bounded by the gate


class TimeoutProtocol(HttpToolsProtocol):
    """uvicorn's own, which waits for ever for a head of any length; a body's time is the gate's business."""

    _waiting: ClassVar[OrderedDict["TimeoutProtocol", None]] = OrderedDict()
    _deadline: asyncio.TimerHandle | None = None
    _received = 0  # bytes since the last request was there

    def connection_made(self, transport: Any) -> None:
        """Give the client some time for its first request."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Hand on what came; the first part of a further request starts its time."""
        before = self.cycle
        if self._deadline is None and (before is None or before.response_complete):
            self._await_head()
        self._received += len(data)
        super().data_received(data)
        if self.cycle is not before:
            self._received = 0
            self._head_is_there()
        elif self.transport.is_closing():
            return
        elif before is not None and not before.response_complete:
            if self._received > MOST_BYTES:
                self._hang_up()
        elif before is not None and before.more_body:
            self.transport.close()  # the rest of a request that was answered without it, and it may have no end
        elif self._received > MOST_HEAD_BYTES:
            self.send_400_response("The head of the request is too long.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._head_is_there()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._hang_up)
        self._waiting[self] = None
        if len(self._waiting) > MOST_WAITING:
            next(iter(self._waiting))._hang_up()  # noqa: SLF001 - one of our own

    def _head_is_there(self) -> None:
        self._waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self) -> None:
        self._head_is_there()
        self.transport.abort()
