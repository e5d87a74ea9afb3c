"""Make HTTP exchanges on aiohttp's connections, without its ClientSession.

`ClientSession` creates about thirty objects and a task for each request, half of the cost of a call
(docs/decisions/0011-webhooks.md). The pool, name resolution, TLS, the guard's socket factory and the parser are
aiohttp's. Only this module and `response_limits` use private parts of aiohttp.
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

READ_BYTES = 16 * 1024  # of a body that aiohttp buffers before it stops reading
_PARAMETERS: dict[str, Any] = {"read_until_eof": True, "auto_decompress": False, "read_bufsize": READ_BYTES}
_IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})
_MAX_TARGETS = 10_000
CONNECT_SECONDS = 15.0  # for name resolution, connection and TLS, within the timeout of the exchange
_CONNECTING = aiohttp.ClientTimeout(connect=CONNECT_SECONDS)
_SWITCHING = 101
_FINAL = 200


class MalformedResponse(aiohttp.ClientError):
    """The response is not HTTP; `message` is the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ConnectFailed(Exception):  # noqa: N818 - as MalformedResponse
    """No connection within CONNECT_SECONDS."""


@dataclass(slots=True)
class RawResponse:
    """An HTTP response as received."""

    status: int
    reason: str
    headers: CIMultiDictProxy[str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _ConnectTarget:
    """The connection parameters of one origin, in the form that aiohttp's connector requires."""

    request: aiohttp.ClientRequest
    host: str  # the Host header


def is_supported() -> bool:
    """Return whether this aiohttp has the private parts that are used here; otherwise use its ClientSession."""
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        protocol = importlib.import_module("aiohttp.client_proto").ResponseHandler
        connect = list(inspect.signature(aiohttp.TCPConnector.connect).parameters)
        response_params = inspect.signature(protocol.set_response_params).parameters.keys()
        matching = connect == ["self", "req", "traces", "timeout"] and response_params >= _PARAMETERS.keys()
        return matching and hasattr(protocol, "read")
    return False


class HttpExchanges:
    """Sends requests and reads responses, on one event loop."""

    def __init__(self, connector: aiohttp.TCPConnector) -> None:
        self._connector = connector
        self._loop = asyncio.get_running_loop()
        self._targets: dict[str, _ConnectTarget] = {}
        self._reused: weakref.WeakSet[asyncio.Protocol] = weakref.WeakSet()  # connections that have had a response

    async def make(self, request: WebhookRequest, most: int) -> RawResponse:
        """Return the response with the first bytes of its body.

        Raises MalformedResponse, TimeoutError or an error of aiohttp.

        An idempotent request is repeated once if the endpoint closed a reused connection.
        """
        path = request.url.index("/", len("https://"))
        target = self._target(request.url[:path])
        data = _encode_request(request, target.host, request.url[path:])
        # Like asyncio.timeout, with less overhead.
        task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101 - a task runs this coroutine
        expired: list[bool] = []
        handle = self._loop.call_later(request.timeout, _expire, task, expired)
        try:
            return await self._send(request.method, target, data, most)
        except asyncio.CancelledError:
            if expired and not task.uncancel():
                raise TimeoutError from None
            raise
        finally:
            handle.cancel()

    async def _send(self, method: str, target: _ConnectTarget, data: bytes, most: int) -> RawResponse:
        connection = await self._connect(target)
        if method in _IDEMPOTENT and connection.protocol in self._reused:
            with contextlib.suppress(aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                return await self._exchange(connection, data, most)
            connection = await self._connect(target)
        return await self._exchange(connection, data, most)

    async def _connect(self, target: _ConnectTarget) -> Connection:
        try:
            return await self._connector.connect(target.request, [], _CONNECTING)
        except TimeoutError:
            raise ConnectFailed from None

    def _target(self, origin: str) -> _ConnectTarget:
        target = self._targets.get(origin)
        if target is None:
            if len(self._targets) >= _MAX_TARGETS:
                self._targets.clear()
            url = URL(origin, encoded=True)
            request = aiohttp.ClientRequest("GET", url, loop=self._loop)
            target = self._targets[origin] = _ConnectTarget(request, url.host_port_subcomponent or "")
        return target

    async def _exchange(self, connection: Connection, data: bytes, most: int) -> RawResponse:
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
            body, whole = await read_beginning(content, most)
            if whole and not transport.get_write_buffer_size():
                connection.release()
                self._reused.add(protocol)
            return RawResponse(status, message.reason, message.headers, body)
        except HttpProcessingError as error:
            raise MalformedResponse(error.message) from None
        finally:
            connection.close()  # no effect if it was released


def _expire(task: "asyncio.Task[None]", expired: list[bool]) -> None:
    expired.append(True)
    task.cancel()


async def read_beginning(content: aiohttp.StreamReader, most: int) -> tuple[bytes, bool]:
    """Return the first bytes of a body, and whether that is all; the rest is not read."""
    body = await content.read(most)
    while body and len(body) < most and not content.at_eof():
        more = await content.read(most - len(body))
        if not more:
            break
        body += more
    return body, content.at_eof()


def _encode_request(request: WebhookRequest, host: str, path: str) -> bytes:
    """Return the request as bytes. Raises ValueError if a header contains a line break."""
    lines = [f"{request.method} {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body is not None:
        lines.append(f"Content-Length: {len(request.body)}")
    head = "\r\n".join((*lines, "", ""))
    if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1 or "\0" in head:
        raise ValueError("a header with a line break")
    return head.encode() + (request.body or b"")
