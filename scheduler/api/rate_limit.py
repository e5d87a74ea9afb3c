"""Limit the requests per second of each token, with bursts of twice that."""

import time
from collections import OrderedDict
from collections.abc import Callable

from scheduler.api.identity import Identity
from scheduler.api.problems import TooManyRequests

_MAX_TOKENS = 10_000


class RateLimit:
    """A bucket for each API token, on the event loop's thread only; the least recently used are dropped."""

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._burst = 2 * per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and as of when

    def take(self, who: Identity) -> None:
        """Count one request; raise TooManyRequests if it exceeds the rate."""
        now = self._clock()
        left, since = self._buckets.pop(who.token, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._rate)
        allowed = left >= 1
        self._buckets[who.token] = (left - 1 if allowed else left), now
        if len(self._buckets) > _MAX_TOKENS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise TooManyRequests(f"This token may make {self._rate} requests a second (SCHEDULER_API_RATE).", 1)
