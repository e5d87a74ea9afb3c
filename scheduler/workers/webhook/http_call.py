"""Makes one HTTP call: within its time, to an address that may be dialled, with no more read than is kept."""

import asyncio
import errno
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
    beginning,
    possible,
)
from scheduler.workers.webhook.redaction import Redaction
from scheduler.workers.webhook.request import WebhookRequest
from scheduler.workers.webhook.response import MOST_BODY, WebhookResponse, decide_outcome, printable_text
from scheduler.workers.webhook.response_limits import BoundedConnector, ResponseLimitExceeded, bounded_socket

log = get_logger(__name__)

KEEP_ALIVE_SECONDS = 5.0
_OUR_OWN = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
_AGAIN_SECONDS = 10.0


@dataclass(slots=True)
class CallResult:
    """How a call went: the outcome of its attempt, and the class under which it is counted."""

    outcome: WorkOutcome
    kind: str
    answered: bool


class WebhookCaller:
    """One client for all calls, on one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._guard = AddressGuard(settings)
        self._proxy = settings.webhook_proxy
        self._session: aiohttp.ClientSession | None = None
        self._exchanges: HttpExchanges | None = None
        self._resolving = ThreadPoolExecutor(THREADS, thread_name_prefix="resolve")

    def open(self) -> None:
        """Make the client; only on the event loop."""
        asyncio.get_running_loop().set_default_executor(self._resolving)
        connector = BoundedConnector(
            limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, resolver=TenantResolver(),
            socket_factory=bounded_socket if self._proxy else self._guard.socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False,
            read_bufsize=MOST_BODY,
        )
        self._exchanges = HttpExchanges(connector) if possible() and not self._proxy else None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        self._resolving.shutdown(wait=False, cancel_futures=True)

    async def call(
        self, request: WebhookRequest, endpoint: str, host: str, max_delay: float, tenant: str = DEFAULT_TENANT
    ) -> CallResult:
        """Return how the call went; whatever an endpoint does, nothing is raised but the task's own end."""
        dialled = DialledAddresses(host, tenant)
        current.set(dialled)
        try:
            if self._proxy and (why := self._guard.judge_literal(host, URL(request.url).port or 0)):
                return _failed(why, "refused", retry=False)
            answer = await self._exchange(request)
        except (ConnectFailed, aiohttp.ConnectionTimeoutError):
            return _failed(f"{endpoint}: no connection within {CONNECT_SECONDS:g} s", "timeout")
        except TimeoutError:
            return _failed(f"{endpoint} did not answer within {request.timeout:g} s", "timeout")
        except (aiohttp.ClientError, OSError, ValueError, AssertionError) as error:
            return _judged(error, dialled, endpoint, request.redaction)
        outcome = decide_outcome(answer, endpoint, max_delay, datetime.now(UTC))
        return CallResult(outcome, f"{answer.status // 100}xx", answered=True)

    async def _exchange(self, request: WebhookRequest) -> WebhookResponse:
        began = time.monotonic()
        # A secret that lies across the cut must be read whole to be recognised.
        most = MOST_BODY if request.redaction is None else MOST_BODY + request.redaction.longest
        if self._exchanges is None:
            heard = await self._by_session(request, most)
        else:
            heard = await self._exchanges.make(request, most)
        return WebhookResponse(heard.status, heard.reason, _joined(heard.headers), heard.body,
                               time.monotonic() - began,
                      request.redaction)

    async def _by_session(self, request: WebhookRequest, most: int) -> RawResponse:
        """Make the call in aiohttp's own way, which knows how to ask a proxy too."""
        assert self._session is not None  # noqa: S101 - it was opened
        async with self._session.request(
            request.method, URL(request.url, encoded=True), headers=request.headers, data=request.body,
            allow_redirects=False, proxy=self._proxy,
            timeout=aiohttp.ClientTimeout(total=request.timeout, connect=CONNECT_SECONDS),
        ) as response:
            body, whole = await beginning(response.content, most)
            if not whole:
                response.close()
            return RawResponse(response.status, response.reason or "", response.headers, body)


def _joined(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers by name in lower case, what came more than once with commas between."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


def _failed(error: str, kind: str, *, retry: bool = True) -> CallResult:
    return CallResult(WorkOutcome.failed(printable_text(error), retry=retry), kind, answered=False)


def _judged(error: Exception, dialled: DialledAddresses, endpoint: str, redaction: Redaction | None) -> CallResult:
    """Say what went wrong in our own words: a library's may quote a URL with its query."""
    if dialled.refused is not None:
        return _failed(dialled.refused, "refused", retry=False)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError) and cause.errno in _OUR_OWN:
        log.warning("this worker has reached a limit of its machine", problem=cause.strerror,
                    do="raise its limit of open files, or lower SCHEDULER_WORKER_CONCURRENCY")
        return CallResult(WorkOutcome.snoozed(_AGAIN_SECONDS, f"the worker: {cause.strerror}"), "put_off",
                          answered=True)
    if isinstance(cause, ResponseLimitExceeded):
        return _failed(f"{endpoint} exceeded a limit: it sent {cause.message}", "connection")
    match error:
        case aiohttp.InvalidURL():
            return _failed(f"{endpoint}: the URL cannot be called", "invalid", retry=False)
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return _failed(f"{endpoint}: TLS failed: {_tls(error)}", "connection")
        case aiohttp.ClientConnectorDNSError():
            return _failed(f"{endpoint}: the name cannot be resolved: {error.strerror or 'unknown'}", "connection")
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return _failed(f"{endpoint}: the proxy does not serve it ({type(error).__name__})", "connection")
        case aiohttp.ClientConnectorError():
            return _failed(f"{endpoint}: cannot connect: {_strerror(cause)}", "connection")
        case aiohttp.ServerDisconnectedError() | ConnectionError() | aiohttp.ClientOSError():
            return _failed(f"{endpoint} closed the connection before its answer was whole", "connection")
        case MalformedResponse() | aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
            return _failed(f"{endpoint} sent what is not HTTP: {_plainly(error, redaction)}", "connection")
        case _:
            return _failed(f"{endpoint}: {type(error).__name__}", "connection")


def _strerror(error: object) -> str:
    found = getattr(error, "strerror", None)
    return str(found or type(error).__name__)[:200]


def _tls(error: Exception) -> str:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    said = getattr(inner, "verify_message", None) or getattr(inner, "reason", None) or type(inner).__name__
    return str(said)[:200]


def _plainly(error: Exception, redaction: Redaction | None) -> str:
    message = str(getattr(error, "message", "") or type(error).__name__)
    return " ".join((message if redaction is None else redaction.text(message)).split())[:200]
