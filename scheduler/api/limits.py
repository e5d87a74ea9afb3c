"""So many requests a second for one token, in bursts of twice that."""

import time
from collections import OrderedDict
from collections.abc import Callable

from scheduler.api.identity import Identity
from scheduler.api.problems import TooMany

_MOST_KNOWN = 10_000


class RateLimit:
    """A bucket for each token; those not heard of for longest are forgotten. On the event loop's thread only."""

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._burst = 2 * per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: Identity) -> None:
        """Count one request; raise TooMany where it is one too many."""
        now = self._clock()
        left, since = self._buckets.pop(who.token, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._rate)
        allowed = left >= 1
        self._buckets[who.token] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _MOST_KNOWN:
            self._buckets.popitem(last=False)
        if not allowed:
            raise TooMany(f"This token may make {self._rate} requests a second (SCHEDULER_API_RATE).", 1)
