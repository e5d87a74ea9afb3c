"""Whose turn it is: so many calls at once in all, for one tenant and to one endpoint; others wait or are put off.

A call that waits here holds a place among those that the broker hands over, and neither a slow endpoint nor a slow
tenant must take them all. So a call waits only if its turn is likely to come soon. Any other goes back to the
sidecar, as snoozed, until its turn is worked out to come: one after another at the pace of the endpoint or the
tenant, so that of 100,000 calls to a dead endpoint a few come by in a second, and not all of them again and again.

What is known of an endpoint is known for each tenant by itself: one's slow calls say nothing about another's.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from scheduler.domain.tenants import DEFAULT_TENANT
from scheduler.workers.turn_pace import TurnPace
from scheduler.workers.webhook.tenant_shares import TenantShares

Call = TypeVar("Call")

WAIT_SECONDS = 1.0  # a turn that is further away is put off
CROWDED_WAIT_SECONDS = 0.25  # the same where few places are left
BLOCKED_SECONDS = 5.0  # where few places are left: a tenant's own turn that is further away is put off
# While its calls hang, an endpoint gets this many more, one at a time, to see whether other calls succeed.
PROBES = 2
PROBE_SECONDS = 1.0
SLOW_SECONDS = 1.0  # a failure that takes less holds no place for long
_CROWDED = 0.75
REMEMBERED = 10_000  # endpoints
_FORGET_SECONDS = 15.0  # from one look for idle tenants and hosts to the next
FAILING_SECONDS = 3600.0


@dataclass(slots=True)
class EndpointState(TurnPace, Generic[Call]):
    """What is known of one endpoint as one tenant calls it."""

    name: str = ""
    tenant: str = DEFAULT_TENANT
    limit: int = 1
    waiting: deque[tuple[float, Call]] = field(default_factory=deque)
    failing_since: float | None = None
    tried: float = 0.0


@dataclass(slots=True)
class TenantState(TurnPace, Generic[Call]):
    """What is known of one tenant's calls."""

    # endpoints with calls that wait
    ready: OrderedDict[str, EndpointState[Call]] = field(default_factory=OrderedDict)
    waiting: int = 0
    served: int = 0  # the ticket of its newest call


class HostState(TurnPace):
    """What is known of one endpoint, all tenants together."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.shares = TenantShares(limit)


class EndpointLimiter(Generic[Call]):
    """Admits calls, and says which is next when one has ended. For one thread."""

    def __init__(
        self, total: int, per_endpoint: int, room: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Allow so many in flight; `room` more are handed over by the broker and may wait."""
        self._per_endpoint = per_endpoint
        self._crowded = _CROWDED * (total + room)
        self._clock = clock
        self._places = TenantShares(total)
        self._hosts: dict[str, HostState] = {}
        self._known: OrderedDict[tuple[str, str], EndpointState[Call]] = OrderedDict()
        self._tenants: dict[str, TenantState[Call]] = {}
        self._flying: dict[int, EndpointState[Call]] = {}
        self._ticket = 0
        self._forgot = clock()
        self.waiting = 0

    @property
    def in_flight(self) -> int:
        return self._places.used

    def admit(self, name: str, call: Call, tenant: str = DEFAULT_TENANT) -> int | float | None:
        """Return a ticket if the call begins now, None if it waits, or as a float the seconds it is put off."""
        endpoint, now = self._endpoint(tenant, name), self._clock()
        self._places.see(tenant, now)
        self._host(name).shares.see(tenant, now)
        open_ = self._open(endpoint)
        if open_ and not endpoint.waiting and self._places.free(tenant):
            return self._begin(endpoint)
        if not open_ and self._too_long(endpoint):
            return self._put_off(endpoint)
        known = self._tenant(tenant)
        if open_ and self._blocked(tenant):
            return known.put_off(now, self._places.most(tenant))
        endpoint.waiting.append((now, call))
        known.ready[name] = endpoint
        known.waiting += 1
        self.waiting += 1
        return None

    def _open(self, endpoint: EndpointState[Call]) -> bool:
        """Tell whether the endpoint itself has room for one more call of this tenant."""
        begun = len(endpoint.begun)
        if begun >= endpoint.limit and not self._may_probe(endpoint):
            return False
        shares = self._host(endpoint.name).shares
        return shares.used < self._per_endpoint and begun < shares.most(endpoint.tenant)

    def _may_probe(self, endpoint: EndpointState[Call]) -> bool:
        """Tell whether all calls in flight hang, so that the next one is made to see whether it succeeds."""
        hang = self._clock() - endpoint.tried >= PROBE_SECONDS
        return hang and len(endpoint.begun) < endpoint.limit + PROBES

    def _bottleneck(self, endpoint: EndpointState[Call]) -> tuple[TurnPace, int]:
        """Return whose calls in flight an endpoint's next call waits for, and how many there may be."""
        if len(endpoint.begun) >= endpoint.limit:
            return endpoint, endpoint.limit
        return self._host(endpoint.name), self._per_endpoint

    def _is_crowded(self) -> bool:
        return self.in_flight + self.waiting >= self._crowded

    def _too_long(self, endpoint: EndpointState[Call]) -> bool:
        pace, limit = self._bottleneck(endpoint)
        ahead = (len(endpoint.waiting) + 1) * pace.seconds(self._clock(), limit)
        return ahead > (CROWDED_WAIT_SECONDS if self._is_crowded() else WAIT_SECONDS)

    def _blocked(self, tenant: str) -> bool:
        """Tell whether a tenant's calls take the places at which those of others would be handed over."""
        known = self._tenant(tenant)
        ahead = (known.waiting + 1) * known.seconds(self._clock(), self._places.most(tenant))
        return self._is_crowded() and ahead > BLOCKED_SECONDS

    def _put_off(self, endpoint: EndpointState[Call]) -> float:
        pace, limit = self._bottleneck(endpoint)
        return pace.put_off(self._clock(), limit)

    def _begin(self, endpoint: EndpointState[Call]) -> int:
        self._ticket += 1
        tenant, host = self._tenant(endpoint.tenant), self._host(endpoint.name)
        endpoint.tried = self._clock()
        for pace in (endpoint, tenant, host):
            pace.begun[self._ticket] = endpoint.tried
        tenant.served = self._ticket
        self._flying[self._ticket] = endpoint
        self._places.take(endpoint.tenant)
        host.shares.take(endpoint.tenant)
        return self._ticket

    def end(self, ticket: int, *, answered: bool, succeeded: bool) -> None:
        """Note that a call has ended; an endpoint that does not answer gets fewer at a time until it does."""
        endpoint = self._flying.pop(ticket)
        now = self._clock()
        slow = now - endpoint.begun[ticket] >= SLOW_SECONDS
        tenant, host = self._tenant(endpoint.tenant), self._host(endpoint.name)
        for pace in (endpoint, tenant, host):
            pace.end(ticket, now)
        self._places.release(endpoint.tenant)
        host.shares.release(endpoint.tenant)
        if answered:
            endpoint.limit = min(endpoint.limit * 2, self._per_endpoint)
        elif slow:
            endpoint.limit = max(1, endpoint.limit // 2)
        if succeeded:
            endpoint.failing_since = None
        elif endpoint.failing_since is None:
            endpoint.failing_since = now
        if answered and not endpoint.waiting and len(endpoint.begun) < endpoint.limit:
            endpoint.booked_until = host.booked_until = now  # it has room again
        if not tenant.waiting and self._places.free(endpoint.tenant):
            tenant.booked_until = now

    def next(self) -> Iterator[tuple[int, Call]]:
        """Yield the calls that begin now, with their tickets.

        The tenant with the fewest calls in flight comes first, and of a tenant one call to each endpoint in turn.
        """
        while self.waiting and (endpoint := self._pick()) is not None:
            _, call = endpoint.waiting.popleft()
            self._waits_no_more(endpoint)
            yield self._begin(endpoint), call

    def _pick(self) -> EndpointState[Call] | None:
        waiting = [(name, known) for name, known in self._tenants.items() if known.ready]
        if len(waiting) > 1:
            waiting.sort(key=lambda each: (len(each[1].begun), each[1].served))
        for name, known in waiting:
            if not self._places.free(name):
                continue
            for _ in range(len(known.ready)):
                _, endpoint = known.ready.popitem(last=False)
                known.ready[endpoint.name] = endpoint
                if self._open(endpoint):
                    return endpoint
        return None

    def _waits_no_more(self, endpoint: EndpointState[Call]) -> None:
        known = self._tenant(endpoint.tenant)
        known.waiting -= 1
        self.waiting -= 1
        if not endpoint.waiting:
            known.ready.pop(endpoint.name, None)

    def overdue(self) -> Iterator[tuple[Call, float]]:
        """Yield the calls whose turn did not come as soon as was thought, with the seconds they are put off."""
        now = self._clock()
        for name, known in list(self._tenants.items()):
            for endpoint in list(known.ready.values()):
                if self._open(endpoint):
                    continue  # its own turn has come; other endpoints' calls are in the way
                while endpoint.waiting and now - endpoint.waiting[0][0] > WAIT_SECONDS:
                    _, call = endpoint.waiting.popleft()
                    self._waits_no_more(endpoint)
                    yield call, self._put_off(endpoint)
            while known.ready and self._blocked(name):
                endpoint = known.ready[next(reversed(known.ready))]
                _, call = endpoint.waiting.pop()
                self._waits_no_more(endpoint)
                yield call, known.put_off(now, self._places.most(name))
        if now - self._forgot > _FORGET_SECONDS:
            self._forgot = now
            self._forget_idle(now)

    def failing(self) -> list[str]:
        """Return the endpoints that were tried within the hour and have answered none well for an hour."""
        now = self._clock()
        return list(dict.fromkeys(
            each.name for each in self._known.values()
            if each.failing_since is not None and now - each.failing_since >= FAILING_SECONDS
            and now - each.tried < FAILING_SECONDS
        ))

    def _tenant(self, name: str) -> TenantState[Call]:
        found = self._tenants.get(name)
        if found is None:
            found = self._tenants[name] = TenantState()
        return found

    def _host(self, name: str) -> HostState:
        found = self._hosts.get(name)
        if found is None:
            found = self._hosts[name] = HostState(self._per_endpoint)
        return found

    def _endpoint(self, tenant: str, name: str) -> EndpointState[Call]:
        found = self._known.get((tenant, name))
        if found is None:
            found = self._known[tenant, name] = EndpointState(name=name, tenant=tenant, limit=self._per_endpoint)
            if len(self._known) > REMEMBERED:
                self._forget()
        else:
            self._known.move_to_end((tenant, name))
        return found

    def _forget(self) -> None:
        for key, each in self._known.items():
            if not each.begun and not each.waiting:
                del self._known[key]
                return

    def _forget_idle(self, now: float) -> None:
        """Forget tenants and hosts that have had nothing to do for a while."""
        self._places.forget(now)
        for name, known in list(self._tenants.items()):
            if not known.begun and not known.waiting and not self._places.seen(name):
                del self._tenants[name]
        for name, host in list(self._hosts.items()):
            host.shares.forget(now)
            if host.shares.idle:
                del self._hosts[name]
