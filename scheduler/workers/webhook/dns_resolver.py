"""Resolve names on threads divided among tenants: one tenant's slow name servers do not delay the others."""

import asyncio
import socket
from collections import deque

import aiohttp
from aiohttp.abc import ResolveResult

from scheduler.workers.webhook.address_guard import current
from scheduler.workers.webhook.tenant_shares import TenantShares

RESOLVERS = 64  # concurrent lookups; a silent name server blocks one per name
THREADS = RESOLVERS + RESOLVERS // 4  # TenantShares has a reserve of a quarter
MAX_WAITING = 1000  # pending lookups of one tenant


class TenantResolver(aiohttp.ThreadedResolver):
    """Resolves names for the tenant of the current call. A lookup continues after its call has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._shares = TenantShares(RESOLVERS)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name. Raises OSError."""
        call = current.get()
        tenant = "" if call is None else call.tenant
        await self._enter(tenant)
        try:
            return await super().resolve(host, port, family)
        finally:
            self._leave(tenant)

    async def _enter(self, tenant: str) -> None:
        now = self._loop.time()
        self._shares.see(tenant, now)
        self._shares.forget(now)
        waiting = self._waiting.get(tenant)
        if not waiting and self._shares.free(tenant):
            self._shares.take(tenant)
            return
        if waiting is None:
            waiting = self._waiting[tenant] = deque()
        if len(waiting) >= MAX_WAITING:
            raise socket.gaierror(socket.EAI_AGAIN, "too many pending lookups")
        turn = self._loop.create_future()
        waiting.append(turn)
        await turn  # _leave takes the slot before it sets the result

    def _leave(self, tenant: str) -> None:
        self._shares.release(tenant)
        for name, waiting in list(self._waiting.items()):
            while waiting and self._shares.free(name):
                turn = waiting.popleft()
                if not turn.done():
                    self._shares.take(name)
                    turn.set_result(None)
            if not waiting:
                del self._waiting[name]
