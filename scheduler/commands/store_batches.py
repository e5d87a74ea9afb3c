"""Store batches; retry while the database is unavailable, then return them to the queue."""

import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from scheduler.commands.batch_transaction import without_locked
from scheduler.commands.decide_commands import LOCKED
from scheduler.domain.errors import Unavailable
from scheduler.domain.jobs.definition import Incoming, can_precompute_schedule, precompute_schedule
from scheduler.ops import metrics
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.connection import Connection, connect
from scheduler.postgres.jobs.store import check
from scheduler.postgres.locks import LOCK_TIMEOUT
from scheduler.processes.runtime import Stop, backoff
from scheduler.settings import Settings

log = get_logger(__name__)
T = TypeVar("T")
_losses = ThrottledWarning(log, "database unavailable: commands stay in the queue")

# If the database is unavailable for longer, the consumer returns its commands to the queue: another consumer may
# reach the database. Each return in a row doubles the time, because returns count as deliveries.
KEEP_SECONDS = 8.0
MAX_KEEP_SECONDS = 1500.0  # below RabbitMQ's consumer timeout of 30 minutes

PART_SECONDS = 0.25  # of computing schedules


class DatabaseUnavailable(Unavailable):
    """The database has been unavailable for so long that the commands are returned to the queue."""


@dataclass(slots=True)
class StoredBatch:
    """Outcomes of a batch, with start and end in nanoseconds of Unix time."""

    outcomes: Sequence[Any]
    began: int
    ended: int


def split_batch(batch: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Compute the schedules of a batch and yield it in parts, usually one.

    A part ends after PART_SECONDS of computing, so that costly rules delay neither earlier commands nor the
    consumer's liveness.
    """
    began, first = time.monotonic(), 0
    for index, command in enumerate(batch, 1):
        if type(command) is Incoming and can_precompute_schedule(command):
            precompute_schedule(command)
            if time.monotonic() - began > PART_SECONDS:
                yield batch[first:index]
                began, first = time.monotonic(), index
    if first < len(batch):
        yield batch[first:]


ApplyBatch = Callable[..., Sequence[Any]]  # (connection, batch, wake_horizon) -> outcomes


class StoreSession:
    """A lazily opened database connection for one batch at a time."""

    def __init__(self, url: str, execute: ApplyBatch) -> None:
        self._url = url
        self._execute = execute
        self._connection: Connection | None = None
        self.wait_for_locks = True

    def execute(self, batch: Sequence[Any], wake_horizon: timedelta) -> Sequence[Any]:
        """Apply the messages in one transaction."""
        if self.wait_for_locks:
            return self._execute(self.connection(), batch, wake_horizon)
        return self._execute(self.connection(), batch, wake_horizon, wait_for_locks=False)

    def check(self) -> None:
        """Raise Unavailable if commands cannot be stored."""
        check(self.connection())

    def connection(self) -> Connection:
        """Return the connection; open it if necessary."""
        if self._connection is None:
            self._connection = connect(self._url, "consumer", lock_timeout=LOCK_TIMEOUT)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class BatchStore:
    """Stores batches, from several threads, and retries while the database is unavailable."""

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        self._stop = stop
        self._health = health
        self._keep_seconds = KEEP_SECONDS
        # Producers poll at this interval; 100 ms allow for the jitter of sleeps.
        self._wake_horizon = timedelta(milliseconds=settings.poll_interval_ms + 100)

    def store(
        self, session: StoreSession, batch: Sequence[Any], check_broker: Callable[[], None]
    ) -> StoredBatch | None:
        """Store the commands; return None on a stop. Raises DatabaseUnavailable after `_keep_seconds`."""
        began = time.time_ns()
        if not batch:
            return StoredBatch((), began, began)
        outcomes: list[Any] = []
        locked: set[str] = set()
        for part in split_batch(batch):
            stored = self._store(session, part, check_broker, locked)
            if stored is None:
                return None
            outcomes += stored
            if len(outcomes) < len(batch):  # later commands with the same ids keep their order
                locked.update(
                    message.about for message, outcome in zip(part, stored, strict=True) if outcome is LOCKED
                )
            self._health.turn()
        return StoredBatch(outcomes, began, time.time_ns())

    def _store(
        self, session: StoreSession, batch: Sequence[Any], check_broker: Callable[[], None],
        locked: AbstractSet[str],
    ) -> Sequence[Any] | None:
        until = time.monotonic() + self._keep_seconds
        for delay in backoff(most=5.0):
            started = time.perf_counter()
            try:
                if locked:
                    outcomes: Sequence[Any] = without_locked(
                        batch, locked, lambda rest: session.execute(rest, self._wake_horizon)
                    )
                else:
                    outcomes = session.execute(batch, self._wake_horizon)
            except Unavailable as error:
                self._lose(session, error)
                if self._stop.wait(delay):
                    return None
                check_broker()
                if time.monotonic() > until:
                    raise DatabaseUnavailable(str(error)) from None
                self._health.turn()
            else:
                self._keep_seconds = KEEP_SECONDS
                metrics.loop_seconds.labels("store").observe(time.perf_counter() - started)
                self._health.found("postgres")
                return outcomes
        raise AssertionError  # backoff never ends

    def wait(self, session: StoreSession, check_broker: Callable[[], None]) -> None:
        """After commands were returned to the queue, wait until the database is available, or for a stop."""
        self._keep_seconds = min(self._keep_seconds * 2, MAX_KEEP_SECONDS)
        self.when_available(session, session.check, check_broker)

    def when_available(
        self, session: StoreSession, act: Callable[[], T], check_broker: Callable[[], None]
    ) -> T | None:
        """Call `act` until the database is available and return its result; None on a stop."""
        for delay in backoff(most=2.0):
            self._health.turn()
            try:
                result = act()
            except Unavailable as error:
                self._lose(session, error)
            else:
                self._health.found("postgres")
                return result
            if self._stop.wait(delay):
                return None
            check_broker()
        raise AssertionError  # backoff never ends

    def _lose(self, session: StoreSession, error: Unavailable) -> None:
        self._health.missing("postgres", str(error))
        _losses.warning(
            problem=str(error),
            do="check that Postgres runs, that DATABASE_URL is right and that `scheduler migrate` was run",
        )
        session.close()
