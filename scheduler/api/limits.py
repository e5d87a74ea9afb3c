"""So many requests a second for one token, in bursts of twice that."""

import fcntl
import mmap
import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from scheduler.api.identity import Identity
from scheduler.api.problems import TooMany

_MOST_KNOWN = 10_000
Bucket = tuple[float, float]  # how many are left, and since when
Change = Callable[[Bucket | None], Bucket]


class Buckets(Protocol):
    """Keeps a bucket for each token."""

    def change(self, token: str, change: Change) -> None:
        """Put another bucket in the place of a token's own, which may be none."""


class OwnBuckets:
    """Those of one process, on its event loop's thread only; those not heard of for longest are forgotten."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def change(self, token: str, change: Change) -> None:
        """Put another bucket in the place of a token's own, which may be none."""
        self._buckets[token] = change(self._buckets.pop(token, None))
        if len(self._buckets) > _MOST_KNOWN:
            self._buckets.popitem(last=False)


class SharedBuckets:
    """Those of several processes, in memory that all of them see; of two tokens on one place the later has it."""

    PLACES = 16_384
    _PLACE = struct.Struct("=16sdd")  # a part of the token's digest, and the bucket
    _EMPTY = bytes(16)

    def __init__(self, memory: int) -> None:
        """Take the file descriptor that `make` returned, here or in the process that started this one."""
        self._file = memory
        self._memory = mmap.mmap(memory, self.PLACES * self._PLACE.size)

    @classmethod
    def make(cls) -> int:
        """Return the file descriptor of such a memory."""
        memory = os.memfd_create("scheduler api buckets")
        os.truncate(memory, cls.PLACES * cls._PLACE.size)
        return memory

    def change(self, token: str, change: Change) -> None:
        """Put another bucket in the place of a token's own, while no other process does."""
        whose = bytes.fromhex(token)[:16].ljust(16, b"\0")
        size = self._PLACE.size
        at = int.from_bytes(whose[:8], "big") % self.PLACES * size
        fcntl.lockf(self._file, fcntl.LOCK_EX, size, at)
        try:
            there, left, since = self._PLACE.unpack_from(self._memory, at)
            known = (left, since) if there == whose and there != self._EMPTY else None
            self._PLACE.pack_into(self._memory, at, whose, *change(known))
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, size, at)


class RateLimit:
    """Counts the requests of each token."""

    def __init__(
        self, per_second: int, clock: Callable[[], float] = time.monotonic, buckets: Buckets | None = None
    ) -> None:
        self._rate = per_second
        self._burst = 2 * per_second
        self._clock = clock  # the machine's own, the same in all its processes
        self._buckets = buckets or OwnBuckets()

    def take(self, who: Identity) -> None:
        """Count one request; raise TooMany where it is one too many."""
        now = self._clock()
        allowed = True

        def taken(known: Bucket | None) -> Bucket:
            nonlocal allowed
            left, since = known or (float(self._burst), now)
            left = min(self._burst, left + max(0.0, now - since) * self._rate)
            allowed = left >= 1
            return (left - 1 if allowed else left), now

        self._buckets.change(who.token, taken)
        if not allowed:
            raise TooMany(f"This token may make {self._rate} requests a second (SCHEDULER_API_RATE).", 1)
