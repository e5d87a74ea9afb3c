"""Whose turn it is: so many calls at once in all and to one endpoint; what cannot have its turn soon is put off.

A call that waits here holds a place among those that the broker hands over, and a slow endpoint must not take them
all. So a call waits only where its turn is likely to come within a second. Any other goes back to the sidecar, as
snoozed, until its turn is worked out to come: one after another at the pace of the endpoint, so that of 100,000
calls to a dead one a few come by in a second, and not all of them again and again.
"""

import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Call = TypeVar("Call")

WAIT_SECONDS = 1.0  # a turn that is further away is put off
CROWDED_WAIT_SECONDS = 0.25  # the same where few places are left
_CROWDED = 0.75
FIRST_GUESS_SECONDS = 0.1  # of a call to an endpoint that nothing is known of
CAREFUL_GUESS_SECONDS = 0.5  # the same for what is put off: should it hang, all of that comes again
LEAST_SECONDS = 1.0
MOST_SECONDS = 900.0
REMEMBERED = 10_000  # endpoints
FAILING_SECONDS = 3600.0
_WEIGHT = 0.2  # of the newest call in an endpoint's mean


@dataclass(slots=True)
class Endpoint(Generic[Call]):
    """What is known of one endpoint."""

    name: str
    limit: int
    begun: OrderedDict[int, float] = field(default_factory=OrderedDict)  # when each call in flight began
    waiting: deque[tuple[float, Call]] = field(default_factory=deque)
    mean: float | None = None  # seconds that a call takes
    booked_until: float = 0.0  # turns up to then are given to calls that were put off
    failing_since: float | None = None
    tried: float = 0.0


class Turns(Generic[Call]):
    """Admits calls, and says which is next when one has ended. For one thread."""

    def __init__(
        self, total: int, per_endpoint: int, room: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Allow so many in flight; `room` more are handed over by the broker and may wait."""
        self._total = total
        self._per_endpoint = per_endpoint
        self._crowded = _CROWDED * (total + room)
        self._clock = clock
        self._known: OrderedDict[str, Endpoint[Call]] = OrderedDict()
        self._ready: OrderedDict[str, Endpoint[Call]] = OrderedDict()  # those with calls that wait
        self._ticket = 0
        self.in_flight = 0
        self.waiting = 0

    def admit(self, name: str, call: Call) -> int | float | None:
        """Return a ticket if the call begins now, None if it waits, or as a float the seconds it is put off."""
        endpoint = self._endpoint(name)
        free = len(endpoint.begun) < endpoint.limit
        if free and not endpoint.waiting and self.in_flight < self._total:
            return self._begin(endpoint)
        if not free and self._too_long(endpoint):
            return self._put_off(endpoint)
        endpoint.waiting.append((self._clock(), call))
        self._ready[name] = endpoint
        self.waiting += 1
        return None

    def _too_long(self, endpoint: Endpoint[Call]) -> bool:
        ahead = (len(endpoint.waiting) + 1) * self._pace(endpoint)
        crowded = self.in_flight + self.waiting >= self._crowded
        return ahead > (CROWDED_WAIT_SECONDS if crowded else WAIT_SECONDS)

    def _pace(self, endpoint: Endpoint[Call], guess: float = FIRST_GUESS_SECONDS) -> float:
        """Return the seconds from one turn of an endpoint to the next, by its calls so far and those in flight."""
        oldest = next(iter(endpoint.begun.values()), None)
        age = 0.0 if oldest is None else self._clock() - oldest
        mean = guess if endpoint.mean is None else endpoint.mean
        return max(mean, age) / endpoint.limit

    def _put_off(self, endpoint: Endpoint[Call]) -> float:
        now = self._clock()
        booked = max(endpoint.booked_until, now + LEAST_SECONDS) + self._pace(endpoint, CAREFUL_GUESS_SECONDS)
        endpoint.booked_until = min(booked, now + MOST_SECONDS)
        # All that come beyond the last turn that is worked out would come back in the same moment.
        return (endpoint.booked_until - now) * random.uniform(0.9, 1.0)  # noqa: S311 - jitter, not a secret

    def _begin(self, endpoint: Endpoint[Call]) -> int:
        self._ticket += 1
        endpoint.begun[self._ticket] = endpoint.tried = self._clock()
        self.in_flight += 1
        return self._ticket

    def end(self, name: str, ticket: int, *, answered: bool, succeeded: bool) -> None:
        """Note that a call has ended; an endpoint that does not answer gets fewer at a time until it does."""
        endpoint = self._known[name]
        now = self._clock()
        took = now - endpoint.begun.pop(ticket)
        self.in_flight -= 1
        endpoint.mean = took if endpoint.mean is None else (1 - _WEIGHT) * endpoint.mean + _WEIGHT * took
        endpoint.limit = min(endpoint.limit * 2, self._per_endpoint) if answered else max(1, endpoint.limit // 2)
        if succeeded:
            endpoint.failing_since = None
        elif endpoint.failing_since is None:
            endpoint.failing_since = now
        if answered and not endpoint.waiting and len(endpoint.begun) < endpoint.limit:
            endpoint.booked_until = now  # it has room again

    def next(self) -> Iterator[tuple[int, Call]]:
        """Yield the calls that begin now, with their tickets: one of each endpoint in turn."""
        stuck: set[str] = set()
        while self.in_flight < self._total and len(stuck) < len(self._ready):
            name, endpoint = self._ready.popitem(last=False)
            if len(endpoint.begun) >= endpoint.limit:
                stuck.add(name)
                self._ready[name] = endpoint
                continue
            _, call = endpoint.waiting.popleft()
            self.waiting -= 1
            if endpoint.waiting:
                self._ready[name] = endpoint
            yield self._begin(endpoint), call

    def overdue(self) -> Iterator[tuple[Call, float]]:
        """Yield the calls whose turn did not come as soon as was thought, with the seconds they are put off."""
        now = self._clock()
        for name, endpoint in list(self._ready.items()):
            if len(endpoint.begun) < endpoint.limit:
                continue  # its own turn has come; others' calls are in the way
            while endpoint.waiting and now - endpoint.waiting[0][0] > WAIT_SECONDS:
                self.waiting -= 1
                yield endpoint.waiting.popleft()[1], self._put_off(endpoint)
            if not endpoint.waiting:
                del self._ready[name]

    def failing(self) -> list[str]:
        """Return the endpoints that were tried within the hour and have answered none well for an hour."""
        now = self._clock()
        return [
            name for name, each in self._known.items()
            if each.failing_since is not None and now - each.failing_since >= FAILING_SECONDS
            and now - each.tried < FAILING_SECONDS
        ]

    def _endpoint(self, name: str) -> Endpoint[Call]:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Endpoint(name, self._per_endpoint)
            if len(self._known) > REMEMBERED:
                self._forget()
        else:
            self._known.move_to_end(name)
        return found

    def _forget(self) -> None:
        for name, each in self._known.items():
            if not each.begun and not each.waiting:
                del self._known[name]
                return
