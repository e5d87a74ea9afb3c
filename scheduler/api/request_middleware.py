"""What every request passes on its way in and out: limits, headers, the access log and the metrics."""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from scheduler.api.problems import ContentTooLarge, RequestTimeout, Unprocessable, problem
from scheduler.domain.errors import Problem
from scheduler.ops import metrics, traces
from scheduler.ops.logs import get_logger
from scheduler.ops.trace_types import TracedRequest

log = get_logger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

MOST_BODY_BYTES = 1_000_000
MOST_PARAMETERS = 200  # of a query
# Of a body that is too large so much is read and thrown away before the answer: whoever is hung up on while it
# sends may never see what it was told.
MOST_DISCARDED_BYTES = 15_000_000
BODY_SECONDS = 20.0  # for a whole body, however small its parts
_OUR_FAULT = 500
_TOO_LARGE = f"A body may have at most {MOST_BODY_BYTES:,} bytes."
# What a page says itself stays; these hold for all that says nothing.
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# A year; the names below are not ours to speak for.
_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")


class RequestMiddleware:
    """The outermost layer of the application."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        passage = RequestScope(scope, receive, send)
        try:
            if scope["query_string"].count(b"&") >= MOST_PARAMETERS:
                # Before they are taken apart, which costs more than any answer.
                crowded = Unprocessable([Problem("query", f"may have at most {MOST_PARAMETERS} parameters")])
                await crowded.response()(scope, receive, passage.send)
                return
            await self._app(scope, passage.receive, passage.send)
        except Exception:
            log.exception("request failed", method=scope["method"], route=passage.route, do="report this")
            if not passage.status:
                text = "This is an error of the scheduler's own; its log says more."
                await problem(500, text)(scope, receive, passage.send)
        finally:
            passage.end()


class RequestScope:
    """One request on its way through."""

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._began = time.perf_counter()
        self._until = time.monotonic() + BODY_SECONDS
        self._received = 0
        self._whole = False
        self.status = 0

    @property
    def route(self) -> str:
        """The route's own path, never what the client wrote in its place."""
        known: str | None = self._scope.get("route_path")
        if known is not None:
            return known
        route = self._scope.get("route")
        return getattr(route, "path_format", None) or getattr(route, "path", None) or "none"

    async def receive(self) -> Message:
        """Hand on a part of the body; raise ContentTooLarge or RequestTimeout where it has no end."""
        if self._whole:
            return await self._receive()
        headers = dict(self._scope["headers"])
        declared = headers.get(b"content-length", b"")
        length = int(declared) if declared.isdigit() else 0
        # One that asks before it sends is told at once.
        if length > MOST_DISCARDED_BYTES or (length > MOST_BODY_BYTES and b"expect" in headers):
            raise ContentTooLarge(_TOO_LARGE)
        message = await self._part()
        if max(length, self._received) > MOST_BODY_BYTES:
            await self._discard()
            raise ContentTooLarge(_TOO_LARGE)
        return message

    async def _part(self) -> Message:
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise RequestTimeout(f"The body did not come within {BODY_SECONDS:.0f} seconds.") from None
        self._received += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        return message

    async def _discard(self) -> None:
        """Let the client send the rest, if it has an end."""
        with suppress(RequestTimeout):
            while not self._whole and self._received <= MOST_DISCARDED_BYTES:
                await self._part()

    async def send(self, message: Message) -> None:
        """Hand on a part of the response, with our headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            said = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(each for each in _HEADERS if each[0] not in said)]
            if self._over_tls():
                message["headers"].append(_TRANSPORT)
        await self._send(message)

    def _over_tls(self) -> bool:
        """Tell whether the browser came by TLS; a client that says so falsely concerns itself alone."""
        forwarded = next((value for name, value in self._scope["headers"] if name == b"x-forwarded-proto"), b"")
        return bool(self._scope.get("scheme") == "https" or forwarded.split(b",")[0].strip() == b"https")

    def end(self) -> None:
        """Count the request, and write a line about it."""
        took = time.perf_counter() - self._began
        status = self.status or 499  # the client went away
        route = self.route
        count, seconds = metrics.of_route(route, status)
        count.inc()
        seconds.observe(took)
        if traces.sink is not None:
            self._trace(status, took)
        client = self._scope.get("client")
        who = self._scope.get("state", {}).get("sub")
        log.info("request", method=self._scope["method"][:20], route=route, status=status,
                 milliseconds=round(took * 1000, 1), sub=who, client=client[0] if client else None)

    def _trace(self, status: int, took: float) -> None:
        headers = dict(self._scope["headers"])
        names = (b"traceparent", b"tracestate")
        parent, state = (headers.get(name, b"").decode("latin-1") or None for name in names)
        ended = time.time_ns()
        method = self._scope["method"][:20]
        about = {"http.request.method": method, "http.route": self.route, "http.response.status_code": status}
        failed = f"answered {status}" if status >= _OUR_FAULT else None
        if traces.sink is not None:
            traces.sink.served(f"{method} {self.route}", ended - int(took * 1e9), ended,
                               TracedRequest(parent, state, about, failed))
