"""Divide the slots of a shared command among its tenants.

The queue of a command is first in, first out: alone, it lets a tenant with a thousand events delay every other
tenant. So a worker prefetches a window of deliveries. When a slot is free, it starts the delivery of the tenant
with the fewest running commands; among equals, the tenant that was served longest ago. The last free slot is
only for a tenant with no running command, so that one tenant's long commands never occupy every slot. The worker
holds one delivery for each tenant. It snoozes the others after OTHERS_SECONDS, so that other tenants get a turn.

A tenant's deliveries of a higher priority class start first, and are snoozed last. Every tenth start is the
delivery that the tenant has had pending longest.
"""

import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from scheduler.domain.targets.pools import NORMAL_RANK
from scheduler.workers.class_queues import EVERY, ClassQueues
from scheduler.workers.turn_pace import CAREFUL_GUESS_SECONDS, MAX_SECONDS, MIN_SECONDS, TurnPace

Start = TypeVar("Start")

WINDOW = 16  # prefetched deliveries of a shared command
CROWDED = 12  # pending deliveries from which some are snoozed
FIRST_SECONDS = 60.0  # a tenant's first delivery is pending for at most this time; then another worker may get it
OTHERS_SECONDS = 10.0
_REMEMBERED = 1000  # tenants


class TenantQueues(Generic[Start]):
    """The pending deliveries of one command, by tenant. Not thread-safe."""

    def __init__(self, concurrency: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._concurrency = concurrency
        self._clock = clock
        self._pace = TurnPace()
        # By tenant and rank: the estimated start of the last snoozed delivery.
        self._booked: dict[tuple[str, int], float] = {}
        self._pending: dict[str, ClassQueues[Start]] = {}
        self._served: OrderedDict[str, int] = OrderedDict()  # the newest ticket of each tenant
        self._running: Counter[str] = Counter()
        self._tickets: dict[int, str] = {}
        self._ticket = 0

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))

    def pending(self) -> Iterator[Start]:
        """Yield all pending deliveries."""
        return (start for queue in self._pending.values() for start in queue)

    def add(self, tenant: str, start: Start, rank: int = NORMAL_RANK) -> None:
        """Add a pending delivery."""
        self._pending.setdefault(tenant, ClassQueues()).add(self._clock(), start, rank)

    def next(self) -> tuple[int, Start] | None:
        """Return the next delivery to start and the ticket of its slot; None if no delivery may start."""
        free = self._concurrency - len(self._tickets)
        if not self._pending or not free:
            return None
        tenant = min(self._pending, key=lambda tenant: (self._running[tenant], self._served.get(tenant, 0)))
        if free == 1 and self._running[tenant]:
            return None
        self._ticket += 1
        _, start = self._pop(tenant, longest=self._ticket % EVERY == 0)
        self._served[tenant] = self._ticket
        self._served.move_to_end(tenant)
        if len(self._served) > _REMEMBERED:
            self._served.popitem(last=False)
        self._tickets[self._ticket] = tenant
        self._running[tenant] += 1
        self._pace.begun[self._ticket] = self._clock()
        return self._ticket, start

    def end(self, ticket: int) -> None:
        """Free the slot of a command that has ended, or was not started."""
        tenant = self._tickets.pop(ticket)
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        self._pace.end(ticket, self._clock())

    def pop_overdue(self) -> Iterator[tuple[Start, float]]:
        """Yield the deliveries to snooze, each with its seconds."""
        now = self._clock()
        while len(self) >= CROWDED:
            fullest = max(reversed(self._pending), key=lambda tenant: len(self._pending[tenant]))
            yield self._snooze_newest(fullest, now)
        for tenant, queue in list(self._pending.items()):
            while len(queue) > 1 and now - queue.newest_at > OTHERS_SECONDS:
                yield self._snooze_newest(tenant, now)
            if now - queue.oldest_at > FIRST_SECONDS:
                yield self._pop(tenant, longest=True)[1], 0.0

    def clear(self) -> list[Start]:
        """Remove and return all pending deliveries."""
        starts = list(self.pending())
        self._pending.clear()
        return starts

    def _snooze_newest(self, tenant: str, now: float) -> tuple[Start, float]:
        queue = self._pending[tenant]
        rank, start = queue.pop_newest()
        if not queue:
            del self._pending[tenant]
        return start, self._book(tenant, rank, now)

    def _book(self, tenant: str, rank: int, now: float) -> float:
        """Estimate the next free turn of a tenant's class, and return the seconds until then."""
        self._booked = {key: until for key, until in self._booked.items() if until > now}
        before = max((until for (name, own), until in self._booked.items() if name == tenant and own <= rank),
                     default=0.0)
        booked = max(before, now + MIN_SECONDS)
        booked += self._pace.seconds(now, self._concurrency, CAREFUL_GUESS_SECONDS)
        booked = self._booked[tenant, rank] = min(booked, now + MAX_SECONDS)
        return (booked - now) * random.uniform(0.9, 1.0)  # noqa: S311 - jitter, not a secret

    def _pop(self, tenant: str, *, longest: bool) -> tuple[int, Start]:
        queue = self._pending[tenant]
        popped = queue.pop(longest=longest)
        if not queue:
            del self._pending[tenant]
        return popped
