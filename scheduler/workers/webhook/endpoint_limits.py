"""Limit concurrent calls in total, per tenant and per endpoint.

A pending call uses one of the prefetched deliveries, and neither a slow endpoint nor a slow tenant may use all of
them. So a call is pending only if its turn is likely to come soon. All other calls are snoozed until their
estimated turn, one after another at the rate of the endpoint or the tenant: of 100,000 calls to a dead endpoint,
only a few per second return to the worker.

The state of an endpoint is separate for each tenant: slow calls of one tenant do not limit the others.

Calls of a higher priority class of the same tenant start before all pending ones of lower classes, and are booked
before them. Every tenth start of a tenant is the call that has been pending longest at the next endpoint.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from scheduler.domain.targets.pools import NORMAL_RANK
from scheduler.domain.tenants import DEFAULT_TENANT
from scheduler.workers.class_queues import EVERY, ClassQueues
from scheduler.workers.turn_pace import TurnPace
from scheduler.workers.webhook.tenant_shares import TenantShares

Call = TypeVar("Call")

WAIT_SECONDS = 1.0  # a call whose turn is later is snoozed
CROWDED_WAIT_SECONDS = 0.25  # the same if few deliveries are left
BLOCKED_SECONDS = 5.0  # if few deliveries are left: a call whose tenant's turn is later is snoozed
# While its calls hang, an endpoint gets this many more, one at a time, to see whether other calls succeed.
PROBES = 2
PROBE_SECONDS = 1.0
SLOW_SECONDS = 1.0  # a faster failure does not reduce the limit
_CROWDED = 0.75
REMEMBERED = 10_000  # endpoints
_FORGET_SECONDS = 15.0  # between two searches for idle tenants and hosts
FAILING_SECONDS = 3600.0


@dataclass(slots=True)
class EndpointState(TurnPace, Generic[Call]):
    """The state of one endpoint for one tenant."""

    name: str = ""
    tenant: str = DEFAULT_TENANT
    limit: int = 1
    waiting: ClassQueues[Call] = field(default_factory=ClassQueues)
    failing_since: float | None = None
    called_at: float = 0.0


@dataclass(slots=True)
class TenantState(TurnPace, Generic[Call]):
    """The state of one tenant's calls."""

    # endpoints with pending calls
    ready: OrderedDict[str, EndpointState[Call]] = field(default_factory=OrderedDict)
    waiting: Counter[int] = field(default_factory=Counter)  # by rank
    starts: int = 0  # of pending calls
    served: int = 0  # the ticket of its newest call

    def ahead(self, rank: int) -> int:
        """Return the number of pending calls before a new one of this rank."""
        return sum(count for own, count in self.waiting.items() if own <= rank)


class HostState(TurnPace):
    """The state of one endpoint for all tenants."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.shares = TenantShares(limit)


class EndpointLimiter(Generic[Call]):
    """Admits calls, and selects the next one when a call ends. Not thread-safe."""

    def __init__(
        self, total: int, per_endpoint: int, room: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Allow `total` calls in flight; the broker delivers `room` more, which may be pending."""
        self._per_endpoint = per_endpoint
        self._crowded = _CROWDED * (total + room)
        self._clock = clock
        self._slots = TenantShares(total)
        self._hosts: dict[str, HostState] = {}
        self._endpoints: OrderedDict[tuple[str, str], EndpointState[Call]] = OrderedDict()
        self._tenants: dict[str, TenantState[Call]] = {}
        self._in_flight: dict[int, EndpointState[Call]] = {}
        self._ticket = 0
        self._forgot = clock()
        self.waiting = 0

    @property
    def in_flight(self) -> int:
        return self._slots.used

    def admit(
        self, name: str, call: Call, tenant: str = DEFAULT_TENANT, rank: int = NORMAL_RANK
    ) -> int | float | None:
        """Return a ticket if the call starts now, None if it is pending, or a float: the seconds to snooze it."""
        endpoint, now = self._endpoint(tenant, name), self._clock()
        self._slots.see(tenant, now)
        self._host(name).shares.see(tenant, now)
        accepts = self._accepts(endpoint)
        if accepts and not endpoint.waiting and self._slots.free(tenant):
            return self._start(endpoint)
        if not accepts and self._too_long(endpoint, rank):
            return self._book(endpoint, rank)
        tenant_state = self._tenant(tenant)
        if accepts and self._blocked(tenant, rank):
            return tenant_state.book(now, self._slots.most(tenant), rank)
        endpoint.waiting.add(now, call, rank)
        tenant_state.ready[name] = endpoint
        tenant_state.waiting[rank] += 1
        self.waiting += 1
        return None

    def _accepts(self, endpoint: EndpointState[Call]) -> bool:
        """Return whether the endpoint accepts one more call of this tenant."""
        begun = len(endpoint.begun)
        if begun >= endpoint.limit and not self._may_probe(endpoint):
            return False
        shares = self._host(endpoint.name).shares
        return shares.used < self._per_endpoint and begun < shares.most(endpoint.tenant)

    def _may_probe(self, endpoint: EndpointState[Call]) -> bool:
        """Return whether all calls in flight hang, so that another one may test the endpoint."""
        hang = self._clock() - endpoint.called_at >= PROBE_SECONDS
        return hang and len(endpoint.begun) < endpoint.limit + PROBES

    def _bottleneck(self, endpoint: EndpointState[Call]) -> tuple[TurnPace, int]:
        """Return the pace and the limit on which an endpoint's next call depends."""
        if len(endpoint.begun) >= endpoint.limit:
            return endpoint, endpoint.limit
        return self._host(endpoint.name), self._per_endpoint

    def _is_crowded(self) -> bool:
        return self.in_flight + self.waiting >= self._crowded

    def _too_long(self, endpoint: EndpointState[Call], rank: int) -> bool:
        pace, limit = self._bottleneck(endpoint)
        ahead = (endpoint.waiting.ahead(rank) + 1) * pace.seconds(self._clock(), limit)
        return ahead > (CROWDED_WAIT_SECONDS if self._is_crowded() else WAIT_SECONDS)

    def _blocked(self, tenant: str, rank: int) -> bool:
        """Return whether a tenant's pending calls use deliveries that other tenants need."""
        tenant_state = self._tenant(tenant)
        ahead = (tenant_state.ahead(rank) + 1) * tenant_state.seconds(self._clock(), self._slots.most(tenant))
        return self._is_crowded() and ahead > BLOCKED_SECONDS

    def _book(self, endpoint: EndpointState[Call], rank: int) -> float:
        pace, limit = self._bottleneck(endpoint)
        return pace.book(self._clock(), limit, rank)

    def _start(self, endpoint: EndpointState[Call]) -> int:
        self._ticket += 1
        tenant, host = self._tenant(endpoint.tenant), self._host(endpoint.name)
        endpoint.called_at = self._clock()
        for pace in (endpoint, tenant, host):
            pace.begun[self._ticket] = endpoint.called_at
        tenant.served = self._ticket
        self._in_flight[self._ticket] = endpoint
        self._slots.take(endpoint.tenant)
        host.shares.take(endpoint.tenant)
        return self._ticket

    def end(self, ticket: int, *, answered: bool, succeeded: bool) -> None:
        """Record the end of a call: double the endpoint's limit after a response, halve it if it fails slowly."""
        endpoint = self._in_flight.pop(ticket)
        now = self._clock()
        slow = now - endpoint.begun[ticket] >= SLOW_SECONDS
        tenant, host = self._tenant(endpoint.tenant), self._host(endpoint.name)
        for pace in (endpoint, tenant, host):
            pace.end(ticket, now)
        self._slots.release(endpoint.tenant)
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
            endpoint.booked.clear()  # it has free slots again
            host.booked.clear()
        if not tenant.ready and self._slots.free(endpoint.tenant):
            tenant.booked.clear()

    def next(self) -> Iterator[tuple[int, Call]]:
        """Yield the calls that start now, with their tickets.

        The tenant with the fewest calls in flight is first; a tenant's endpoints take turns within a class.
        """
        while self.waiting and (picked := self._pick()) is not None:
            endpoint, longest = picked
            self._tenant(endpoint.tenant).starts += 1
            rank, call = endpoint.waiting.pop(longest=longest)
            self._remove_pending(endpoint, rank)
            yield self._start(endpoint), call

    def _pick(self) -> tuple[EndpointState[Call], bool] | None:
        """Return an endpoint, and whether its longest pending call is next instead of the first."""
        waiting = [(name, tenant_state) for name, tenant_state in self._tenants.items() if tenant_state.ready]
        if len(waiting) > 1:
            waiting.sort(key=lambda pair: (len(pair[1].begun), pair[1].served))
        for name, tenant_state in waiting:
            if not self._slots.free(name):
                continue
            longest = tenant_state.starts % EVERY == EVERY - 1
            if (endpoint := self._next_endpoint(tenant_state, in_turn=longest)) is not None:
                return endpoint, longest
        return None

    def _next_endpoint(self, tenant_state: TenantState[Call], *, in_turn: bool) -> EndpointState[Call] | None:
        """Return the endpoint with the highest class of pending calls, or the next one in turn."""
        highest = min(tenant_state.waiting)
        best: EndpointState[Call] | None = None
        for endpoint in list(tenant_state.ready.values()):
            if (best is not None and endpoint.waiting.rank >= best.waiting.rank) or not self._accepts(endpoint):
                continue
            best = endpoint
            if in_turn or endpoint.waiting.rank == highest:
                break
        if best is not None:
            tenant_state.ready.move_to_end(best.name)
        return best

    def _remove_pending(self, endpoint: EndpointState[Call], rank: int) -> None:
        tenant_state = self._tenant(endpoint.tenant)
        tenant_state.waiting[rank] -= 1
        if not tenant_state.waiting[rank]:
            del tenant_state.waiting[rank]
        self.waiting -= 1
        if not endpoint.waiting:
            tenant_state.ready.pop(endpoint.name, None)

    def overdue(self) -> Iterator[tuple[Call, float]]:
        """Yield the calls whose turn is later than estimated, with the seconds to snooze them."""
        now = self._clock()
        for name, tenant_state in list(self._tenants.items()):
            for endpoint in list(tenant_state.ready.values()):
                if self._accepts(endpoint):
                    continue  # only the limits of the tenant or of the worker delay it
                for rank, call in endpoint.waiting.pop_before(now - WAIT_SECONDS):
                    self._remove_pending(endpoint, rank)
                    yield call, self._book(endpoint, rank)
            while tenant_state.ready and self._blocked(name, max(tenant_state.waiting)):
                lowest = max(tenant_state.waiting)
                endpoint = next(endpoint for endpoint in reversed(tenant_state.ready.values())
                                if endpoint.waiting.lowest == lowest)
                rank, call = endpoint.waiting.pop_newest()
                self._remove_pending(endpoint, rank)
                yield call, tenant_state.book(now, self._slots.most(name), rank)
        if now - self._forgot > _FORGET_SECONDS:
            self._forgot = now
            self._forget_idle(now)

    def failing(self) -> list[str]:
        """Return the endpoints that were called within the hour and have had no success for an hour."""
        now = self._clock()
        return list(dict.fromkeys(
            endpoint.name for endpoint in self._endpoints.values()
            if endpoint.failing_since is not None and now - endpoint.failing_since >= FAILING_SECONDS
            and now - endpoint.called_at < FAILING_SECONDS
        ))

    def _tenant(self, name: str) -> TenantState[Call]:
        state = self._tenants.get(name)
        if state is None:
            state = self._tenants[name] = TenantState()
        return state

    def _host(self, name: str) -> HostState:
        state = self._hosts.get(name)
        if state is None:
            state = self._hosts[name] = HostState(self._per_endpoint)
        return state

    def _endpoint(self, tenant: str, name: str) -> EndpointState[Call]:
        state = self._endpoints.get((tenant, name))
        if state is None:
            state = EndpointState(name=name, tenant=tenant, limit=self._per_endpoint)
            self._endpoints[tenant, name] = state
            if len(self._endpoints) > REMEMBERED:
                self._forget_endpoint()
        else:
            self._endpoints.move_to_end((tenant, name))
        return state

    def _forget_endpoint(self) -> None:
        for key, endpoint in self._endpoints.items():
            if not endpoint.begun and not endpoint.waiting:
                del self._endpoints[key]
                return

    def _forget_idle(self, now: float) -> None:
        """Forget idle tenants and hosts."""
        self._slots.forget(now)
        for name, tenant_state in list(self._tenants.items()):
            if not tenant_state.begun and not tenant_state.waiting and not self._slots.seen(name):
                del self._tenants[name]
        for name, host in list(self._hosts.items()):
            host.shares.forget(now)
            if host.shares.idle:
                del self._hosts[name]
