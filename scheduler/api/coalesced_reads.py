"""Share the result of a query between concurrent callers, and cache it for a few seconds."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

MIN_SECONDS = 1.0  # for which a result is cached
MAX_SECONDS = 10.0
SHARE = 0.02  # of the time, at most, goes into queries: a slow query is cached for longer
_MAX_CACHED = 1000


class CoalescedReads(Generic[Key, Result]):
    """A cache of results by key; callers that arrive during a query wait for its result."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most_seconds: float = MAX_SECONDS,
        most_cached: int = _MAX_CACHED,
    ) -> None:
        self._clock = clock
        self._most_cached = most_cached
        self._most_seconds = most_seconds
        self._cached: OrderedDict[Key, tuple[float, Result]] = OrderedDict()
        self._running: dict[Key, asyncio.Task[Result]] = {}

    async def get(self, key: Key, query: Callable[[], Awaitable[Result]]) -> Result:
        """Return the cached result, or the result of `query`."""
        cached = self._cached.get(key)
        if cached is not None and self._clock() < cached[0]:
            return cached[1]
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._run(key, query))
        # If this caller is cancelled, the query continues for the others.
        return await asyncio.shield(task)

    async def _run(self, key: Key, query: Callable[[], Awaitable[Result]]) -> Result:
        started = self._clock()
        try:
            result = await query()
        finally:
            del self._running[key]
        ended = self._clock()
        lifetime = min(max(MIN_SECONDS, (ended - started) / SHARE), self._most_seconds)
        self._cached[key] = (ended + lifetime, result)
        self._cached.move_to_end(key)
        if len(self._cached) > self._most_cached:
            self._cached.popitem(last=False)
        return result
