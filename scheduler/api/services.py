"""Services for routes and pages, created once per process."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from scheduler.api.actions import Actions
from scheduler.api.calendars import CalendarService
from scheduler.api.database import Database
from scheduler.api.dead_letters import DeadLetterService
from scheduler.api.delayed_messages import DelayedMessageService
from scheduler.api.fair_threads import FairThreads
from scheduler.api.identity import Identity
from scheduler.api.job_import import JobImport
from scheduler.api.keys import NoKeys, key_source
from scheduler.api.problems import ServiceUnavailable
from scheduler.api.rate_limit import RateLimit
from scheduler.api.reads import Reads
from scheduler.api.sign_in import ConsoleSessions, OidcSignIn, is_session, sign_in_of
from scheduler.api.tokens import TokenVerifier
from scheduler.ops.health import HealthPart
from scheduler.settings import Settings

_FETCHING_THREADS = 2  # one fetches keys, another waits for it
_MAX_WAITING = 20
_COMPUTE_THREADS = 2  # one tenant gets one; more would only compete for the interpreter lock


class KeyFetchQueue:
    """Verifies tokens that need a key fetch on separate threads, so that no other request waits."""

    def __init__(self, tokens: TokenVerifier) -> None:
        self._tokens = tokens
        self._threads = ThreadPoolExecutor(_FETCHING_THREADS, thread_name_prefix="keys")
        self._waiting = 0

    async def identify(self, token: str, address: str | None) -> Identity:
        """Return the token's identity after the fetch. Raises ServiceUnavailable if too many requests wait."""
        if self._waiting >= _MAX_WAITING:
            raise ServiceUnavailable("The keys to verify tokens are being fetched; retry later.")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._tokens.identify, token, address)
        finally:
            self._waiting -= 1


@dataclass(frozen=True, slots=True)
class Services:
    """Reads, actions and authentication."""

    settings: Settings
    reads: Reads
    actions: Actions
    job_import: JobImport
    dead: DeadLetterService
    delayed: DelayedMessageService
    calendars: CalendarService
    tokens: TokenVerifier
    limit: RateLimit
    database: Database
    compute: FairThreads  # for occurrences and previews
    fetches: KeyFetchQueue
    sessions: ConsoleSessions
    sign_in: OidcSignIn | None  # with OpenID Connect
    accepts_tokens: bool  # False: sign-in is the only way in

    async def identify_visitor(self, cookie: str, address: str | None = None) -> Identity:
        """Return the user of a console cookie: a stored session or a token."""
        if is_session(cookie):
            return await self.sessions.identify(cookie, address)
        return await self.identify(cookie, address)

    async def identify(self, token: str, address: str | None = None) -> Identity:
        """Return the token's identity; if keys must be fetched, without delaying other requests."""
        cached = self.tokens.cached(token, address)
        if cached is not None:
            return cached
        if self.tokens.may_wait(token):
            return await self.fetches.identify(token, address)
        return self.tokens.identify(token, address)

    def close(self) -> None:
        """End the threads and close the connections."""
        self.database.close()
        self.compute.close()
        if self.sign_in is not None:
            self.sign_in.close()


def make_services(settings: Settings, health: HealthPart | None = None) -> Services:
    """Create the services. Raises Misconfigured without a key."""
    keys = key_source(settings)
    database = Database(
        settings.database_url, settings.api_connections, health, read_url=settings.database_read_url,
        max_lag=settings.database_read_max_lag,
    )
    compute = FairThreads("api compute", _COMPUTE_THREADS)
    actions = Actions(database, compute, settings)
    reads = Reads(database, compute, settings)
    tokens = TokenVerifier(keys, settings.jwt_issuer, settings.jwt_audience, not_before=settings.jwt_not_before)
    sessions = ConsoleSessions(database, settings.jwt_not_before)
    sign_in = sign_in_of(settings, sessions)
    return Services(
        settings=settings, reads=reads, actions=actions,
        job_import=JobImport(database, compute, settings),
        dead=DeadLetterService(actions, reads, settings),
        delayed=DelayedMessageService(database, actions),
        calendars=CalendarService(database, compute, settings),
        tokens=tokens,
        limit=RateLimit(settings.api_rate), database=database, compute=compute,
        fetches=KeyFetchQueue(tokens), sessions=sessions, sign_in=sign_in,
        accepts_tokens=not isinstance(keys, NoKeys),
    )
