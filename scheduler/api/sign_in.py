"""Sign-in to the console with OpenID Connect: the provider on separate threads, sessions in Postgres."""

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from scheduler.api.database import Database
from scheduler.api.identity import Identity
from scheduler.api.oidc import OidcClient, OidcProvider, PendingCookie, PendingSignIn, SignedIn
from scheduler.api.problems import ApiError, BadRequest, ServiceUnavailable, Unauthorized
from scheduler.api.tokens import ROLES_BY_NAME
from scheduler.postgres import console_sessions
from scheduler.settings import Settings

SESSION_LIFETIME = timedelta(hours=8)
_PREFIX = "oidc."  # never the start of a JWT
_THREADS = 4
_MAX_WAITING = 40

T = TypeVar("T")


def is_session(cookie: str) -> bool:
    """Return whether a cookie names a stored session; otherwise it is a token."""
    return cookie.startswith(_PREFIX)


@dataclass(frozen=True, slots=True)
class StartedSignIn:
    """The provider's address, and the cookie for the way back."""

    url: str
    cookie: str


class ConsoleSessions:
    """Sessions that a server-side row makes valid."""

    def __init__(self, database: Database, not_before: float | None = None) -> None:
        self._database = database
        self._not_before = not_before

    async def open(self, user: SignedIn) -> str:
        """Return the cookie of a new session."""
        cookie = _PREFIX + secrets.token_urlsafe(32)
        role = user.role.name.lower()
        await self._database.write(lambda connection: console_sessions.insert_session(
            connection, _digest(cookie), user.sub, role, user.tenant, SESSION_LIFETIME))
        return cookie

    async def identify(self, cookie: str, address: str | None = None) -> Identity:
        """Return the session's user. Raises Unauthorized if it has ended or expired."""
        digest = _digest(cookie)
        session = await self._database.read_primary(
            lambda connection: console_sessions.find_session(connection, digest))
        if session is None or (self._not_before is not None and session.created_at < self._not_before):
            raise Unauthorized("Your session has ended: log in again.")
        return Identity(session.sub, ROLES_BY_NAME[session.role], session.tenant, digest.hex()[:32], address)

    async def end(self, cookie: str) -> None:
        """End a session: no replica accepts its cookie again."""
        await self._database.write(lambda connection: console_sessions.delete_session(connection, _digest(cookie)))


class OidcSignIn:
    """Takes a browser through the provider's sign-in."""

    def __init__(self, client: OidcClient, sessions: ConsoleSessions, fallback_secret: str | None) -> None:
        """Sign the browser's cookie with the client secret, or with another secret that all replicas share."""
        self.redirect_url = client.redirect_url
        self._issuer = client.issuer
        self._provider = OidcProvider(client)
        self._cookie = PendingCookie(client.client_secret or fallback_secret)
        self._sessions = sessions
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sign-in")
        self._waiting = 0

    async def problem(self) -> str | None:
        """Return why no sign-in is possible at the moment."""
        try:
            await self._run(self._provider.metadata)
        except ApiError as error:
            return error.detail
        return None

    async def start(self, then: str, redirect_uri: str) -> StartedSignIn:
        """Begin a sign-in. Raises ServiceUnavailable without a provider."""
        pending = PendingSignIn.new(then)
        url = await self._run(lambda: self._provider.authorization_url(pending, redirect_uri))
        return StartedSignIn(url, self._cookie.write(pending))

    def pending(self, cookie: str | None, state: str) -> PendingSignIn:
        """Return the sign-in that a callback belongs to. Raises BadRequest."""
        return self._cookie.read(cookie, state)

    def check_issuer(self, issuer: str | None) -> None:
        """Raise BadRequest for a response of another provider (RFC 9207)."""
        if issuer not in (None, self._issuer):
            raise BadRequest("This response comes from another provider.")

    async def finish(self, pending: PendingSignIn, code: str, redirect_uri: str) -> str:
        """Exchange the code; return the cookie of the new session."""
        user = await self._run(lambda: self._provider.sign_in(pending, code, redirect_uri))
        return await self._sessions.open(user)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._waiting >= _MAX_WAITING:
            raise ServiceUnavailable("Too many sign-ins wait for the provider; retry.")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def sign_in_of(settings: Settings, sessions: ConsoleSessions) -> OidcSignIn | None:
    """Return the sign-in that the settings describe, None without one. Raises Misconfigured."""
    client = OidcClient.of(settings)
    return None if client is None else OidcSignIn(client, sessions, settings.jwt_key)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).digest()
