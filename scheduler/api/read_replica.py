"""Reads from a streaming replica: only while it is reachable, nearly current, and has the caller's own writes."""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from scheduler.api.problems import ServiceUnavailable
from scheduler.api.rate_limit import usage_of_request
from scheduler.domain.errors import Unavailable
from scheduler.ops import metrics
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.connection import Connection
from scheduler.postgres.replica_position import replayed_position, written_position

T = TypeVar("T")
Query = Callable[[Callable[[Connection], Any]], Awaitable[Any]]

log = get_logger(__name__)
_unused = ThrottledWarning(log, "reads use the primary: the replica is unavailable or far behind", every=60)

NAME = "postgres_read"  # in health and metrics
COMPARE_SECONDS = 1.0
_OUTDATED_SECONDS = 3 * COMPARE_SECONDS  # after a comparison
_MAX_WRITERS = 10_000


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """How far the replica is behind, None if unknown, and why it is not used."""

    lag_seconds: float | None
    problem: str | None


class ReplicaFreshness:
    """Which moment of the primary the replica has reached, from positions in the write-ahead log.

    Independent of clocks, and of whether the primary has anything to write. Times are monotonic.
    """

    def __init__(self, max_lag: float) -> None:
        self._max_lag = max_lag
        self._written: deque[tuple[float, int]] = deque()  # not replayed yet: read when, up to where
        self._reached = -math.inf
        self._compared_at = -math.inf
        self._wrote: OrderedDict[str, float] = OrderedDict()
        self._others_wrote = -math.inf

    def compared(self, at: float, written: int, replayed: float) -> None:
        """Record how much the primary had written at a time, and how much the replica had replayed after that."""
        self._written.append((at, written))
        while self._written and self._written[0][1] <= replayed:
            self._reached, _ = self._written.popleft()
        self._compared_at = at

    def lost(self) -> None:
        """Stop using the replica until the next comparison."""
        self._compared_at = -math.inf

    def wrote(self, person: str, at: float) -> None:
        """Record that a user's change was committed no later than `at`."""
        self._wrote[person] = at
        self._wrote.move_to_end(person)
        if len(self._wrote) > _MAX_WRITERS:
            _, self._others_wrote = self._wrote.popitem(last=False)

    def lag(self) -> float:
        """Return the replica's lag at the last comparison, in seconds; infinite if unknown."""
        return math.inf if math.isinf(self._compared_at) else self._compared_at - self._reached

    def serves(self, person: str, now: float) -> bool:
        """Return whether the replica is current enough for a read by this user."""
        current = self._compared_at > now - _OUTDATED_SECONDS and self.lag() <= self._max_lag
        return current and self._wrote.get(person, self._others_wrote) < self._reached


class ReadReplica:
    """A replica for reads. Its state is compared with the primary's every second."""

    def __init__(self, primary: Query, replica: Query, max_lag: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._primary = primary
        self._replica = replica
        self._max_lag = max_lag
        self._clock = clock
        self._freshness = ReplicaFreshness(max_lag)
        self._replayed = 0.0
        self._problem: str | None = "not compared with the primary yet"

    @property
    def state(self) -> ReplicaState:
        """The lag at the last comparison, and the reason if the replica is not used."""
        lag = self._freshness.lag()
        known = math.isfinite(lag)
        problem = self._problem
        if problem is None and lag > self._max_lag:
            problem = f"it is more than {self._max_lag:g} seconds behind"
        return ReplicaState(round(lag, 3) if known else None, problem)

    def serves(self) -> bool:
        """Return whether the read of the current request may use the replica."""
        usage = usage_of_request.get()
        return self._freshness.serves("" if usage is None else usage.person, self._clock())

    def wrote(self) -> None:
        """Record that the current user has written: the primary serves that user until the replica has it."""
        usage = usage_of_request.get()
        self._freshness.wrote("" if usage is None else usage.person, self._clock())

    def lost(self, problem: str) -> None:
        """Use the primary until the next comparison succeeds."""
        self._problem = problem
        self._freshness.lost()
        metrics.dependency_up.labels(NAME).set(0)
        metrics.dependency_lag.labels(NAME).set(math.nan)
        _unused.warning(problem=problem, do="check DATABASE_READ_URL and the replica")

    async def watch(self) -> None:
        """Compare the servers every second, until this task is cancelled."""
        while True:
            await self.compare()
            await asyncio.sleep(COMPARE_SECONDS)

    async def compare(self) -> None:
        """Compare the replica's position with the primary's."""
        began = self._clock()
        try:
            written = await self._primary(written_position)
            before, self._replayed = self._replayed, await self._replica(replayed_position)
            if written < before < math.inf:
                raise Unavailable("it is ahead of the primary: it follows another server")
        except (Unavailable, ServiceUnavailable) as error:
            self.lost(error.detail if isinstance(error, ServiceUnavailable) else str(error))
            return
        self._problem = None
        self._freshness.compared(began, written, self._replayed)
        state = self.state
        metrics.dependency_up.labels(NAME).set(0 if state.problem else 1)
        metrics.dependency_lag.labels(NAME).set(math.nan if state.lag_seconds is None else state.lag_seconds)
        if state.problem:
            _unused.warning(problem=state.problem, do="look for long queries on the replica, and at its load")
