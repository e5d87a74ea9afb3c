"""One look for all who ask at about the same time."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")

LEAST_SECONDS = 1.0  # that an answer is good for
MOST_SECONDS = 10.0
SHARE = 0.02  # of the time, at most, is spent on looking again: what takes long is not looked at each second
_MOST_KEPT = 1000


class CoalescedReads(Generic[Key, Found]):
    """Answers by key, kept for a while; who asks while one is being found waits for that one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, Found]] = OrderedDict()
        self._coming: dict[Key, asyncio.Task[Found]] = {}

    async def get(self, key: Key, look: Callable[[], Awaitable[Found]]) -> Found:
        """Return an answer that is not old, found by others or by a look."""
        kept = self._kept.get(key)
        if kept is not None and self._clock() < kept[0]:
            return kept[1]
        task = self._coming.get(key)
        if task is None:
            task = self._coming[key] = asyncio.create_task(self._find(key, look))
        # One who goes away leaves the look to the others.
        return await asyncio.shield(task)

    async def _find(self, key: Key, look: Callable[[], Awaitable[Found]]) -> Found:
        began = self._clock()
        try:
            found = await look()
        finally:
            del self._coming[key]
        ended = self._clock()
        keep = min(max(LEAST_SECONDS, (ended - began) / SHARE), MOST_SECONDS)
        self._kept[key] = (ended + keep, found)
        self._kept.move_to_end(key)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return found
