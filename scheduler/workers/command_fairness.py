"""Divides the slots of a shared command among its tenants.

The queue of a command is first in, first out: alone, it lets a tenant with a thousand events delay every other
tenant. So a worker prefetches a window of deliveries. When a slot is free, it starts the delivery of the tenant
with the fewest running commands; among equals, of the tenant that was served longest ago. The last free slot is
only for a tenant with no running command, so that one tenant's long commands never occupy every slot. The worker
holds one delivery for each tenant. It snoozes the others after a while, so that other tenants get a turn.
"""

import random
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from scheduler.workers.turn_pace import CAREFUL_GUESS_SECONDS, LEAST_SECONDS, MOST_SECONDS, TurnPace

Start = TypeVar("Start")

WINDOW = 16  # deliveries of a shared command that a worker is handed at once
CROWDED = 12  # from so many on, some are put off
FIRST_SECONDS = 60.0  # that a tenant's first delivery waits here; then it comes again, perhaps to another worker
OTHERS_SECONDS = 10.0
_REMEMBERED = 1000  # tenants


class TenantQueues(Generic[Start]):
    """The deliveries of one command that wait, by tenant. For one thread."""

    def __init__(self, concurrency: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._concurrency = concurrency
        self._clock = clock
        self._pace = TurnPace()
        self._booked: dict[str, float] = {}  # by tenant: turns up to then are given to what was put off
        self._waiting: dict[str, deque[tuple[float, Start]]] = {}
        self._served: OrderedDict[str, int] = OrderedDict()  # the newest ticket of each tenant
        self._running: Counter[str] = Counter()
        self._tickets: dict[int, str] = {}
        self._ticket = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def waiting(self) -> Iterator[Start]:
        """Yield all that wait."""
        return (start for each in self._waiting.values() for _, start in each)

    def wait(self, tenant: str, start: Start) -> None:
        """Have a delivery wait for its turn."""
        self._waiting.setdefault(tenant, deque()).append((self._clock(), start))

    def next(self) -> tuple[int, Start] | None:
        """Return the next delivery to start and the ticket of its slot; None if no delivery may start."""
        free = self._concurrency - len(self._tickets)
        if not self._waiting or not free:
            return None
        tenant = min(self._waiting, key=lambda tenant: (self._running[tenant], self._served.get(tenant, 0)))
        if free == 1 and self._running[tenant]:
            return None
        start = self._take(tenant, newest=False)
        self._ticket += 1
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

    def put_off(self) -> Iterator[tuple[Start, float]]:
        """Yield the deliveries that cannot wait here, with the seconds they are put off."""
        now = self._clock()
        while len(self) >= CROWDED:
            fullest = max(reversed(self._waiting), key=lambda tenant: len(self._waiting[tenant]))
            yield self._take(fullest, newest=True), self._seconds(fullest, now)
        for tenant, waiting in list(self._waiting.items()):
            while len(waiting) > 1 and now - waiting[-1][0] > OTHERS_SECONDS:
                yield self._take(tenant, newest=True), self._seconds(tenant, now)
            if now - waiting[0][0] > FIRST_SECONDS:
                yield self._take(tenant, newest=False), 0.0

    def clear(self) -> list[Start]:
        """Return and forget all that wait."""
        found = list(self.waiting())
        self._waiting.clear()
        return found

    def _seconds(self, tenant: str, now: float) -> float:
        """Book a tenant's next turn at the command's pace, and return the seconds until then."""
        self._booked = {name: until for name, until in self._booked.items() if until > now}
        booked = max(self._booked.get(tenant, 0.0), now + LEAST_SECONDS)
        booked += self._pace.seconds(now, self._concurrency, CAREFUL_GUESS_SECONDS)
        self._booked[tenant] = min(booked, now + MOST_SECONDS)
        return (self._booked[tenant] - now) * random.uniform(0.9, 1.0)  # noqa: S311 - jitter, not a secret

    def _take(self, tenant: str, *, newest: bool) -> Start:
        waiting = self._waiting[tenant]
        _, start = waiting.pop() if newest else waiting.popleft()
        if not waiting:
            del self._waiting[tenant]
        return start
