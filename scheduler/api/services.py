"""All that routes and pages need, made once for each process."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from scheduler.api.actions import Actions
from scheduler.api.database import Database
from scheduler.api.dead_letters import DeadLetterService
from scheduler.api.delayed_messages import DelayedMessageService
from scheduler.api.fair_threads import FairThreads
from scheduler.api.identity import Identity
from scheduler.api.keys import key_source
from scheduler.api.problems import ServiceUnavailable
from scheduler.api.rate_limit import RateLimit
from scheduler.api.reads import Reads
from scheduler.api.tokens import TokenVerifier
from scheduler.ops.health import HealthPart
from scheduler.settings import Settings

_FETCHING_THREADS = 2  # one fetches keys, another waits for it
_MOST_WAITING = 20
_COMPUTE_THREADS = 2  # one tenant gets one; more would only compete for the interpreter lock


class KeyFetchQueue:
    """Requests that wait for keys, on threads of their own: whatever they ask for, no other request waits."""

    def __init__(self, tokens: TokenVerifier) -> None:
        self._tokens = tokens
        self._threads = ThreadPoolExecutor(_FETCHING_THREADS, thread_name_prefix="keys")
        self._waiting = 0

    async def identify(self, token: str, address: str | None) -> Identity:
        """Return the token's identity once the keys are there. Raises ServiceUnavailable if too many wait."""
        if self._waiting >= _MOST_WAITING:
            raise ServiceUnavailable("The keys to verify tokens by are being fetched; ask again.")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._tokens.identify, token, address)
        finally:
            self._waiting -= 1


@dataclass(frozen=True, slots=True)
class Services:
    """Reads, actions, and who may ask for them."""

    settings: Settings
    reads: Reads
    actions: Actions
    dead: DeadLetterService
    delayed: DelayedMessageService
    tokens: TokenVerifier
    limit: RateLimit
    database: Database
    compute: FairThreads  # for occurrences and previews
    fetches: KeyFetchQueue

    async def identify(self, token: str, address: str | None = None) -> Identity:
        """Return whose token it is; where keys may have to be fetched, without holding up other requests."""
        known = self.tokens.known(token, address)
        if known is not None:
            return known
        if self.tokens.may_wait(token):
            return await self.fetches.identify(token, address)
        return self.tokens.identify(token, address)

    def close(self) -> None:
        """End the threads and close the connections."""
        self.database.close()
        self.compute.close()


def make_services(settings: Settings, health: HealthPart | None = None) -> Services:
    """Make the services; raise Misconfigured where there is no key."""
    found = key_source(settings)
    database = Database(settings.database_url, settings.api_connections, health)
    compute = FairThreads("api compute", _COMPUTE_THREADS)
    actions = Actions(database, compute, settings)
    tokens = TokenVerifier(found, settings.jwt_issuer, settings.jwt_audience, not_before=settings.jwt_not_before)
    return Services(
        settings=settings, reads=Reads(database, compute, settings), actions=actions,
        dead=DeadLetterService(actions, settings),
        delayed=DelayedMessageService(database, actions),
        tokens=tokens,
        limit=RateLimit(settings.api_rate), database=database, compute=compute,
        fetches=KeyFetchQueue(tokens),
    )
