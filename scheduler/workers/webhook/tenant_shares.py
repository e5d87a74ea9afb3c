"""Divide slots among tenants.

A single active tenant may use every slot. As soon as another is active, a quarter stays free. If all slots are in
use, a new tenant gets one from a reserve beyond them: no tenant waits for the calls of another.
"""

from collections import Counter

RECENT_SECONDS = 60.0
_PART = 4  # one slot in four stays free for other tenants


class TenantShares:
    """Counts the slots of each tenant. Not thread-safe; the caller passes the time."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._reserve = max(1, total // _PART)
        self._held: Counter[str] = Counter()
        self._seen: dict[str, float] = {}
        self.used = 0

    def see(self, tenant: str, now: float) -> None:
        """Record that a tenant is active."""
        self._seen[tenant] = now

    def forget(self, now: float) -> None:
        """Forget the tenants that have been idle for RECENT_SECONDS."""
        for tenant, at in list(self._seen.items()):
            if now - at > RECENT_SECONDS and not self._held[tenant]:
                del self._seen[tenant]
                del self._held[tenant]

    def seen(self, tenant: str) -> bool:
        """Return whether a tenant was active recently."""
        return tenant in self._seen

    @property
    def idle(self) -> bool:
        """Whether no tenant was active recently."""
        return not self._seen and not self.used

    def most(self, tenant: str) -> int:
        """Return the maximum number of slots of a tenant at this time."""
        alone = len(self._seen) <= (tenant in self._seen)
        return self._total if alone else max(1, self._total - self._reserve)

    def free(self, tenant: str) -> bool:
        """Return whether a tenant may take another slot now."""
        own = self._held[tenant]
        if self.used < self._total and own < self.most(tenant):
            return True
        # At most half of the remaining reserve, so that some is left for the next tenant.
        left = self._total + self._reserve - self.used
        return left > 0 and own < max(1, left // 2)

    def take(self, tenant: str) -> None:
        """Take a slot."""
        self._held[tenant] += 1
        self.used += 1

    def release(self, tenant: str) -> None:
        """Release a slot."""
        self._held[tenant] -= 1
        self.used -= 1
