"""Connections that have no patience with clients who send a byte a second, and a bound to how many may try."""

import asyncio
from collections import OrderedDict
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # for the head of a request, from its first byte or from the connection on
MOST_WAITING = 5_000  # connections whose request is not there yet; beyond, the one that waits for longest goes


class ImpatientProtocol(H11Protocol):
    """uvicorn's own, which waits for ever for a head; a body's time is the gate's business."""

    _waiting: ClassVar[OrderedDict["ImpatientProtocol", None]] = OrderedDict()
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Give the client some time for its first request."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Hand on what came; the first part of a further request starts its time."""
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_is_there()

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
