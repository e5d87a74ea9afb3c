"""Make HTTP calls within their timeout, to allowed addresses, and read a limited part of the response."""

import asyncio
import errno
import os
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
from yarl import URL

from scheduler.domain.tenants import DEFAULT_TENANT
from scheduler.ops.logs import get_logger
from scheduler.settings import Settings
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.webhook.address_guard import AddressGuard, DialledAddresses, current
from scheduler.workers.webhook.dns_resolver import THREADS, TenantResolver
from scheduler.workers.webhook.exchange import (
    CONNECT_SECONDS,
    ConnectFailed,
    HttpExchanges,
    MalformedResponse,
    RawResponse,
    is_supported,
    read_beginning,
)
from scheduler.workers.webhook.redaction import Redaction
from scheduler.workers.webhook.request import WebhookRequest
from scheduler.workers.webhook.response import MAX_BODY, WebhookResponse, decide_outcome, printable_text
from scheduler.workers.webhook.response_limits import BoundedConnector, ResponseLimitExceeded, bounded_socket

log = get_logger(__name__)

KEEP_ALIVE_SECONDS = 5.0
_LOCAL_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
_SNOOZE_SECONDS = 10.0


@dataclass(slots=True)
class CallResult:
    """The outcome of a call, and its class in the metrics."""

    outcome: WorkOutcome
    kind: str
    answered: bool


class WebhookCaller:
    """The HTTP client of all calls, on one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._guard = AddressGuard(settings)
        self._proxy = settings.webhook_proxy
        self._session: aiohttp.ClientSession | None = None
        self._exchanges: HttpExchanges | None = None
        self._resolving = ThreadPoolExecutor(THREADS, thread_name_prefix="resolve")

    def open(self) -> None:
        """Create the client; call this on the event loop."""
        asyncio.get_running_loop().set_default_executor(self._resolving)
        connector = BoundedConnector(
            limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, resolver=TenantResolver(),
            socket_factory=bounded_socket if self._proxy else self._guard.socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False,
            read_bufsize=MAX_BODY,
        )
        self._exchanges = HttpExchanges(connector) if is_supported() and not self._proxy else None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        self._resolving.shutdown(wait=False, cancel_futures=True)

    async def call(
        self, request: WebhookRequest, endpoint: str, host: str, max_delay: float, tenant: str = DEFAULT_TENANT
    ) -> CallResult:
        """Make a call and return its result. Raises only CancelledError."""
        dialled = DialledAddresses(host, tenant)
        current.set(dialled)
        try:
            if self._proxy and (reason := self._guard.check_literal(host, URL(request.url).port or 0)):
                return _failed(reason, "refused", retry=False)
            response = await self._exchange(request)
        except (ConnectFailed, aiohttp.ConnectionTimeoutError):
            return _failed(f"{endpoint}: no connection within {CONNECT_SECONDS:g} s", "timeout")
        except TimeoutError:
            return _failed(f"{endpoint} did not respond within {request.timeout:g} s", "timeout")
        except (aiohttp.ClientError, OSError, ValueError, AssertionError) as error:
            return _describe_failure(error, dialled, endpoint, request.redaction)
        outcome = decide_outcome(response, endpoint, max_delay, datetime.now(UTC))
        return CallResult(outcome, f"{response.status // 100}xx", answered=True)

    async def _exchange(self, request: WebhookRequest) -> WebhookResponse:
        began = time.monotonic()
        # A secret across the cut is recognised only if it is read completely.
        most = MAX_BODY if request.redaction is None else MAX_BODY + request.redaction.longest
        if self._exchanges is None:
            raw = await self._call_with_session(request, most)
        else:
            raw = await self._exchanges.make(request, most)
        return WebhookResponse(raw.status, raw.reason, _join_headers(raw.headers), raw.body,
                               time.monotonic() - began, request.redaction)

    async def _call_with_session(self, request: WebhookRequest, most: int) -> RawResponse:
        """Make a call with aiohttp's ClientSession, which supports proxies."""
        assert self._session is not None  # noqa: S101 - set by open()
        async with self._session.request(
            request.method, URL(request.url, encoded=True), headers=request.headers, data=request.body,
            allow_redirects=False, proxy=self._proxy,
            timeout=aiohttp.ClientTimeout(total=request.timeout, connect=CONNECT_SECONDS),
        ) as response:
            body, whole = await read_beginning(response.content, most)
            if not whole:
                response.close()
            return RawResponse(response.status, response.reason or "", response.headers, body)


def _join_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers by lower-case name; join repeated ones with commas."""
    joined: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


def _failed(error: str, kind: str, *, retry: bool = True) -> CallResult:
    return CallResult(WorkOutcome.failed(printable_text(error), retry=retry), kind, answered=False)


def _describe_failure(
    error: Exception, dialled: DialledAddresses, endpoint: str, redaction: Redaction | None
) -> CallResult:
    """Describe a failure without the library's message, which may quote a URL with its query."""
    if dialled.refused is not None:
        return _failed(dialled.refused, "refused", retry=False)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError) and cause.errno in _LOCAL_LIMITS:
        log.warning("the worker reached a limit of its machine", problem=cause.strerror,
                    do="raise the limit of open files, or lower SCHEDULER_WORKER_CONCURRENCY")
        snoozed = WorkOutcome.snoozed(_SNOOZE_SECONDS, f"the worker's machine: {cause.strerror}")
        return CallResult(snoozed, "put_off", answered=True)
    if isinstance(cause, ResponseLimitExceeded):
        return _failed(f"{endpoint} exceeded a limit: it sent {cause.message}", "connection")
    match error:
        case aiohttp.InvalidURL():
            return _failed(f"{endpoint}: invalid URL", "invalid", retry=False)
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return _failed(f"{endpoint}: TLS failed: {_tls(error)}", "connection")
        case aiohttp.ClientConnectorDNSError():
            return _failed(f"{endpoint}: name resolution failed: {error.strerror or 'unknown'}", "connection")
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return _failed(f"{endpoint}: the proxy failed ({type(error).__name__})", "connection")
        case aiohttp.ClientConnectorError():
            return _failed(f"{endpoint}: cannot connect: {_strerror(cause)}", "connection")
        case aiohttp.ServerDisconnectedError() | ConnectionError() | aiohttp.ClientOSError():
            return _failed(f"{endpoint} closed the connection before its response was complete", "connection")
        case MalformedResponse() | aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
            return _failed(f"{endpoint} sent invalid HTTP: {_redacted_message(error, redaction)}", "connection")
        case _:
            return _failed(f"{endpoint}: {type(error).__name__}", "connection")


def _strerror(error: object) -> str:
    """Return the system's text of an error; the loop's own text quotes the address as a tuple."""
    number = getattr(error, "errno", None)
    text = os.strerror(number) if number is not None and number > 0 else getattr(error, "strerror", None)
    return str(text or type(error).__name__)[:200]


def _tls(error: Exception) -> str:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    reason = getattr(inner, "verify_message", None) or getattr(inner, "reason", None) or type(inner).__name__
    return str(reason)[:200]


def _redacted_message(error: Exception, redaction: Redaction | None) -> str:
    message = str(getattr(error, "message", "") or type(error).__name__)
    return " ".join((message if redaction is None else redaction.text(message)).split())[:200]
