"""All that routes and pages need, made once for each process."""

import asyncio
from dataclasses import dataclass

from scheduler.api.actions import Actions
from scheduler.api.database import Database
from scheduler.api.dead import Dead
from scheduler.api.delayed import Delayed
from scheduler.api.identity import Identity
from scheduler.api.keys import KeySet, keys
from scheduler.api.limits import Buckets, RateLimit
from scheduler.api.reads import Reads
from scheduler.api.tokens import Tokens
from scheduler.ops.health import HealthPart
from scheduler.settings import Settings


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
    remote_keys: bool

    async def identify(self, token: str, address: str | None = None) -> Identity:
        """Return whose token it is; where keys may have to be fetched, without holding up other requests."""
        known = self.tokens.known(token, address)
        if known is not None:
            return known
        if self.remote_keys:
            return await asyncio.to_thread(self.tokens.identify, token, address)
        return self.tokens.identify(token, address)


def services(
    settings: Settings, health: HealthPart | None = None, buckets: Buckets | None = None
) -> Services:
    """Make the services; raise Misconfigured where there is no key."""
    found = keys(settings)
    database = Database(settings.database_url, settings.api_connections, health)
    actions = Actions(database, settings)
    return Services(
        settings=settings, reads=Reads(database, settings), actions=actions, dead=Dead(actions, settings),
        delayed=Delayed(database, actions),
        tokens=Tokens(found, settings.jwt_issuer, settings.jwt_audience),
        limit=RateLimit(settings.api_rate, buckets=buckets), database=database,
        remote_keys=isinstance(found, KeySet),
    )
