"""One HTTP exchange on aiohttp's own connections, without what its session does for each request besides.

`ClientSession` makes some thirty objects and a task of its own for each request, which was half of what a call
cost (docs/decisions/0011-webhooks.md). The pool, the names, TLS, the guard's socket factory and the parser are
aiohttp's here too. What aiohttp does not promise of them is used in this module and in `response_limits` alone.
"""

import asyncio
import contextlib
import importlib
import inspect
import weakref
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDictProxy
from yarl import URL

from scheduler.workers.webhook.request import WebhookRequest

READ_BYTES = 16 * 1024  # that aiohttp buffers of a body before it stops reading
_PARAMETERS: dict[str, Any] = {"read_until_eof": True, "auto_decompress": False, "read_bufsize": READ_BYTES}
_IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})
_MOST_PLACES = 10_000
CONNECT_SECONDS = 15.0  # to resolve the name, connect and agree on TLS, of the whole exchange's time
_CONNECTING = aiohttp.ClientTimeout(connect=CONNECT_SECONDS)
_SWITCHING = 101
_FINAL = 200


class MalformedResponse(aiohttp.ClientError):
    """What came back is not HTTP; `message` says what is wrong with it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ConnectFailed(Exception):  # noqa: N818 - as MalformedResponse
    """There was no connection in time."""


@dataclass(slots=True)
class RawResponse:
    """What came back, as it came."""

    status: int
    reason: str
    headers: CIMultiDictProxy[str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _ConnectTarget:
    """Whom to connect to for URLs that begin alike, as aiohttp's connector asks for it."""

    request: aiohttp.ClientRequest
    host: str  # the header


def possible() -> bool:
    """Tell whether this aiohttp has what is used of it here; one that has not is used by its session."""
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        protocol = importlib.import_module("aiohttp.client_proto").ResponseHandler
        asked = list(inspect.signature(aiohttp.TCPConnector.connect).parameters)
        given = inspect.signature(protocol.set_response_params).parameters.keys()
        known = asked == ["self", "req", "traces", "timeout"] and given >= _PARAMETERS.keys()
        return known and hasattr(protocol, "read")
    return False


class HttpExchanges:
    """Sends requests and reads answers. For one event loop."""

    def __init__(self, connector: aiohttp.TCPConnector) -> None:
        self._connector = connector
        self._loop = asyncio.get_running_loop()
        self._places: dict[str, _ConnectTarget] = {}
        self._kept: weakref.WeakSet[asyncio.Protocol] = weakref.WeakSet()  # connections after their first answer

    async def make(self, request: WebhookRequest, most: int) -> RawResponse:
        """Return the response with the first bytes of its body.

        Raises MalformedResponse, TimeoutError or an error of aiohttp.

        What may be asked twice is asked again where a kept connection was being closed, not where a new one was.
        """
        path = request.url.index("/", len("https://"))
        place = self._place(request.url[:path])
        data = _written(request, place.host, request.url[path:])
        # As asyncio.timeout, which makes more of it.
        task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101 - a coroutine of the loop's own
        over: list[bool] = []
        handle = self._loop.call_later(request.timeout, _expire, task, over)
        try:
            return await self._made(request.method, place, data, most)
        except asyncio.CancelledError:
            if over and not task.uncancel():
                raise TimeoutError from None
            raise
        finally:
            handle.cancel()

    async def _made(self, method: str, place: _ConnectTarget, data: bytes, most: int) -> RawResponse:
        connection = await self._connected(place)
        if method in _IDEMPOTENT and connection.protocol in self._kept:
            with contextlib.suppress(aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                return await self._asked(connection, data, most)
            connection = await self._connected(place)
        return await self._asked(connection, data, most)

    async def _connected(self, place: _ConnectTarget) -> Connection:
        try:
            return await self._connector.connect(place.request, [], _CONNECTING)
        except TimeoutError:
            raise ConnectFailed from None

    def _place(self, origin: str) -> _ConnectTarget:
        found = self._places.get(origin)
        if found is None:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            url = URL(origin, encoded=True)
            made = aiohttp.ClientRequest("GET", url, loop=self._loop)
            found = self._places[origin] = _ConnectTarget(made, url.host_port_subcomponent or "")
        return found

    async def _asked(self, connection: Connection, data: bytes, most: int) -> RawResponse:
        try:
            protocol = connection.protocol
            transport = None if protocol is None else protocol.transport
            if protocol is None or transport is None or transport.is_closing():
                raise aiohttp.ServerDisconnectedError
            protocol.set_response_params(**_PARAMETERS)
            transport.write(data)
            status = 0
            while status < _FINAL and status != _SWITCHING:
                message, content = await protocol.read()
                status = message.code
            body, whole = await beginning(content, most)
            if whole and not transport.get_write_buffer_size():
                connection.release()
                self._kept.add(protocol)
            return RawResponse(status, message.reason, message.headers, body)
        except HttpProcessingError as error:
            raise MalformedResponse(error.message) from None
        finally:
            connection.close()  # nothing where it was released


def _expire(task: "asyncio.Task[None]", over: list[bool]) -> None:
    over.append(True)
    task.cancel()


async def beginning(content: aiohttp.StreamReader, most: int) -> tuple[bytes, bool]:
    """Read the first of a body, and tell whether that was all; of a longer one the rest is not read."""
    found = await content.read(most)
    while found and len(found) < most and not content.at_eof():
        more = await content.read(most - len(found))
        if not more:
            break
        found += more
    return found, content.at_eof()


def _written(request: WebhookRequest, host: str, path: str) -> bytes:
    """Return the request as bytes; each header has been judged, and this is where a break in one would matter."""
    lines = [f"{request.method} {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body is not None:
        lines.append(f"Content-Length: {len(request.body)}")
    head = "\r\n".join((*lines, "", ""))
    if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1 or "\0" in head:
        raise ValueError("a header with a line break")
    return head.encode() + (request.body or b"")
