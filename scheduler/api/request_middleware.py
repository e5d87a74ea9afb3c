"""Wrap every request: limits, usage, response headers, access log and metrics."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from scheduler.api.problems import ContentTooLarge, RequestTimeout, Unprocessable, problem
from scheduler.api.rate_limit import RequestUsage, usage_of_request
from scheduler.domain.errors import Problem
from scheduler.ops import metrics, traces
from scheduler.ops.logs import get_logger
from scheduler.ops.trace_types import TracedRequest

log = get_logger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 1_000_000
MAX_QUERY_PARAMETERS = 200
# A client that is disconnected while it sends may miss the response, so up to this size a body is discarded first.
MAX_DISCARDED_BYTES = 15_000_000
BODY_SECONDS = 20.0  # for a whole body
IMPORT_PATH = "/api/v1/jobs/import"
MAX_IMPORT_BYTES = 32_000_000
IMPORT_SECONDS = 60.0
PART_BYTES = 262_144  # of a response: the next part is written when the client has taken this one
MAX_UNSENT_BYTES = 128_000_000  # of large responses, in the whole process
CLOSE_CONNECTION = "scheduler.close_connection"  # in a scope: closes the connection at once
_SERVER_ERROR = 500
_CLIENT_CLOSED_REQUEST = 499
# Defaults: a response that sets one of these itself keeps its own value.
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# One year. No includeSubDomains: subdomains may belong to other services.
_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")


class RequestMiddleware:
    """The outermost layer of the application."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._unsent = UnsentBodies()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = RequestScope(scope, receive, send, self._unsent)
        usage_of_request.set(request.usage)
        try:
            if scope["query_string"].count(b"&") >= MAX_QUERY_PARAMETERS:  # before they are parsed, which is slow
                rejected = Unprocessable([Problem("query", f"may have at most {MAX_QUERY_PARAMETERS} parameters")])
                await rejected.response()(scope, receive, request.send)
                return
            await request.usage.measure(self._app(scope, request.receive, request.send))  # type: ignore[arg-type]
        except Exception:
            log.exception("request failed", method=scope["method"], route=request.route, do="report this")
            if not request.status:
                await problem(500, "Internal error; see the log of scheduler api.")(scope, receive, request.send)
        finally:
            request.end()


class UnsentBodies:
    """Large bodies that clients have not read yet, oldest first."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[RequestScope, int] = OrderedDict()
        self._total = 0

    def add(self, request: "RequestScope", size: int) -> None:
        """Count a body. If all together are too large, close the connections that have been sending longest."""
        while self._sizes and self._total + size > MAX_UNSENT_BYTES:
            oldest = next(iter(self._sizes))
            self.remove(oldest)
            oldest.close_connection()
        self._sizes[request] = size
        self._total += size

    def remove(self, request: "RequestScope") -> None:
        """Forget a body that was sent or dropped."""
        self._total -= self._sizes.pop(request, 0)


class RequestScope:
    """One request and its response."""

    def __init__(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send, unsent: UnsentBodies
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._unsent = unsent
        self._started = time.perf_counter()
        is_import = scope["path"] == IMPORT_PATH
        self._max_bytes = MAX_IMPORT_BYTES if is_import else MAX_BODY_BYTES
        self._max_discarded = self._max_bytes + MAX_DISCARDED_BYTES - MAX_BODY_BYTES
        self._seconds = IMPORT_SECONDS if is_import else BODY_SECONDS
        self._deadline = time.monotonic() + self._seconds
        self._received = 0
        self._complete = False
        self.status = 0
        self.usage = RequestUsage()

    @property
    def route(self) -> str:
        """The path of the route, without the values of its parameters."""
        path: str | None = self._scope.get("route_path")
        if path is not None:
            return path
        route = self._scope.get("route")
        return getattr(route, "path_format", None) or getattr(route, "path", None) or "none"

    async def receive(self) -> Message:
        """Return the next part of the body. Raises ContentTooLarge or RequestTimeout."""
        if self._complete:
            return await self._receive()
        headers = dict(self._scope["headers"])
        declared = headers.get(b"content-length", b"")
        length = int(declared) if declared.isdigit() else 0
        # A client that sends Expect waits for the response before it sends its body.
        if length > self._max_discarded or (length > self._max_bytes and b"expect" in headers):
            raise ContentTooLarge(f"The body exceeds {self._max_bytes:,} bytes.")
        message = await self._receive_part()
        if max(length, self._received) > self._max_bytes:
            await self._discard()
            raise ContentTooLarge(f"The body exceeds {self._max_bytes:,} bytes.")
        return message

    async def _receive_part(self) -> Message:
        try:
            async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise RequestTimeout(f"The body did not arrive within {self._seconds:.0f} seconds.") from None
        self._received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        return message

    async def _discard(self) -> None:
        with suppress(RequestTimeout):
            while not self._complete and self._received <= self._max_discarded:
                await self._receive_part()

    async def send(self, message: Message) -> None:
        """Send the start of the response with our headers, or a part of its body."""
        if message["type"] == "http.response.start":
            self._start(message)
            await self._send(message)
            return
        body = message.get("body", b"")
        self.usage.spend(sent=len(body))
        if len(body) <= PART_BYTES:
            await self._send(message)
        else:
            await self._send_parts(body, more=message.get("more_body", False))

    def _start(self, message: Message) -> None:
        self.status = message["status"]
        names = {name.lower() for name, _ in message["headers"]}
        if any(name == b"content-type" and value.startswith(b"text/event-stream")
               for name, value in message["headers"]):
            self.usage.leave()  # a live stream has no end; subscriptions.py limits the number of streams
        message["headers"] = [*message["headers"], *(header for header in _HEADERS if header[0] not in names)]
        if self._over_tls():
            message["headers"].append(_TRANSPORT)

    async def _send_parts(self, body: bytes, *, more: bool) -> None:
        """Send a large body as fast as the client reads it: the request is in progress until it has been read."""
        self._unsent.add(self, len(body))
        try:
            for start in range(0, len(body), PART_BYTES):
                part = body[start : start + PART_BYTES]
                await self._send({"type": "http.response.body", "body": part, "more_body": True})
            await self._send({"type": "http.response.body", "body": b"", "more_body": more})
        finally:
            self._unsent.remove(self)

    def close_connection(self) -> None:
        """Close the connection without sending the rest."""
        self._scope[CLOSE_CONNECTION]()

    def _over_tls(self) -> bool:
        """Return whether the client uses TLS; a client that lies about this affects only itself."""
        forwarded = next((value for name, value in self._scope["headers"] if name == b"x-forwarded-proto"), b"")
        return bool(self._scope.get("scheme") == "https" or forwarded.split(b",")[0].strip() == b"https")

    def end(self) -> None:
        """Charge, count and log the request."""
        self.usage.spend()
        self.usage.leave()
        duration = time.perf_counter() - self._started
        status = self.status or _CLIENT_CLOSED_REQUEST
        route = self.route
        count, seconds = metrics.of_route(route, status)
        count.inc()
        seconds.observe(duration)
        if traces.sink is not None:
            self._trace(status, duration)
        client = self._scope.get("client")
        sub = self._scope.get("state", {}).get("sub")
        log.info("request", method=self._scope["method"][:20], route=route, status=status,
                 milliseconds=round(duration * 1000, 1), sub=sub, client=client[0] if client else None)

    def _trace(self, status: int, duration: float) -> None:
        headers = dict(self._scope["headers"])
        names = (b"traceparent", b"tracestate")
        parent, state = (headers.get(name, b"").decode("latin-1") or None for name in names)
        ended = time.time_ns()
        method = self._scope["method"][:20]
        attributes = {"http.request.method": method, "http.route": self.route, "http.response.status_code": status}
        failed = f"HTTP status {status}" if status >= _SERVER_ERROR else None
        if traces.sink is not None:
            traces.sink.served(f"{method} {self.route}", ended - int(duration * 1e9), ended,
                               TracedRequest(parent, state, attributes, failed))
