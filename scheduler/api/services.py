"""All that routes and pages need, made once for each process."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from scheduler.api.actions import Actions
from scheduler.api.database import Database
from scheduler.api.dead_letters import Dead
from scheduler.api.delayed_messages import Delayed
from scheduler.api.identity import Identity
from scheduler.api.keys import keys
from scheduler.api.problems import Away
from scheduler.api.rate_limit import RateLimit
from scheduler.api.reads import Reads
from scheduler.api.tokens import Tokens
from scheduler.ops.health import HealthPart
from scheduler.settings import Settings

_FETCHING_THREADS = 2  # one fetches keys, another waits for it
_MOST_WAITING = 20


class KeyFetches:
    """Requests that wait for keys, on threads of their own: whatever they ask for, no other request waits."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._threads = ThreadPoolExecutor(_FETCHING_THREADS, thread_name_prefix="keys")
        self._waiting = 0

    async def identify(self, token: str, address: str | None) -> Identity:
        """Return whose token it is once the keys are there; raise Away where too many wait for them."""
        if self._waiting >= _MOST_WAITING:
            raise Away("The keys to verify tokens by are being fetched; ask again.")
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
    dead: Dead
    delayed: Delayed
    tokens: Tokens
    limit: RateLimit
    database: Database
    fetches: KeyFetches

    async def identify(self, token: str, address: str | None = None) -> Identity:
        """Return whose token it is; where keys may have to be fetched, without holding up other requests."""
        known = self.tokens.known(token, address)
        if known is not None:
            return known
        if self.tokens.may_wait(token):
            return await self.fetches.identify(token, address)
        return self.tokens.identify(token, address)


def services(settings: Settings, health: HealthPart | None = None) -> Services:
    """Make the services; raise Misconfigured where there is no key."""
    found = keys(settings)
    database = Database(settings.database_url, settings.api_connections, health)
    actions = Actions(database, settings)
    tokens = Tokens(found, settings.jwt_issuer, settings.jwt_audience, not_before=settings.jwt_not_before)
    return Services(
        settings=settings, reads=Reads(database, settings), actions=actions, dead=Dead(actions, settings),
        delayed=Delayed(database, actions),
        tokens=tokens,
        limit=RateLimit(settings.api_rate), database=database,
        fetches=KeyFetches(tokens),
    )
