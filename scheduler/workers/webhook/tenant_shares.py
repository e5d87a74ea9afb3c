"""Shares a number of places fairly among tenants.

A tenant that is alone may take every place. Once another has been seen it leaves a quarter free, and a tenant that
comes while all places are taken gets one from a reserve beyond them: no tenant waits for the calls of another.
"""

from collections import Counter

RECENT_SECONDS = 60.0
_PART = 4  # one place in so many is kept for other tenants


class TenantShares:
    """Counts the places that each tenant holds. For one thread; times come from the caller's clock."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._reserve = max(1, total // _PART)
        self._held: Counter[str] = Counter()
        self._seen: dict[str, float] = {}
        self.used = 0

    def see(self, tenant: str, now: float) -> None:
        """Note that a tenant has something to do."""
        self._seen[tenant] = now

    def forget(self, now: float) -> None:
        """Forget the tenants that have had nothing to do for a while."""
        for tenant, at in list(self._seen.items()):
            if now - at > RECENT_SECONDS and not self._held[tenant]:
                del self._seen[tenant]
                del self._held[tenant]

    def seen(self, tenant: str) -> bool:
        """Tell whether a tenant has had something to do of late."""
        return tenant in self._seen

    @property
    def idle(self) -> bool:
        """Whether no tenant has had anything to do of late."""
        return not self._seen and not self.used

    def most(self, tenant: str) -> int:
        """Return how many places a tenant can hold at the moment, counting those that others do not use."""
        alone = len(self._seen) <= (tenant in self._seen)
        return self._total if alone else max(1, self._total - self._reserve)

    def free(self, tenant: str) -> bool:
        """Tell whether a tenant may take a place now."""
        mine = self._held[tenant]
        if self.used < self._total and mine < self.most(tenant):
            return True
        # Half of what is left of the reserve at most, so that there is some for the next tenant.
        left = self._total + self._reserve - self.used
        return left > 0 and mine < max(1, left // 2)

    def take(self, tenant: str) -> None:
        """Take a place."""
        self._held[tenant] += 1
        self.used += 1

    def release(self, tenant: str) -> None:
        """Give a place back."""
        self._held[tenant] -= 1
        self.used -= 1
