"""Keeps commands until they are stored: waits for the database, and gives up in time for another consumer."""

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
Found = TypeVar("Found")
_losses = ThrottledWarning(log, "database unavailable: commands stay in the queue until it is back")

# Without a database a consumer keeps its commands no longer than this, then gives them back: another one may
# reach it. Each time in a row that this was of no use it keeps them longer, for every return counts as a delivery.
KEEP_SECONDS = 8.0
MOST_KEEP_SECONDS = 1500.0  # RabbitMQ itself takes back what is not acknowledged for half an hour

PART_SECONDS = 0.25  # of working out rules


class DatabaseUnavailable(Unavailable):
    """The database has been away for so long that the commands are given back."""


@dataclass(slots=True)
class StoredBatch:
    """What became of the commands of a batch that could be read, and when, in nanoseconds of Unix time."""

    verdicts: Sequence[Any]
    began: int
    ended: int


def split_batch(batch: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the commands of a batch in parts, each as soon as its rules are worked out.

    A part ends after PART_SECONDS of work, so that costly rules delay neither what came before them nor the
    liveness of the consumer. Nearly always there is one part.
    """
    began, first = time.monotonic(), 0
    for index, command in enumerate(batch, 1):
        if isinstance(command, Incoming) and can_precompute_schedule(command):
            precompute_schedule(command)
            if time.monotonic() - began > PART_SECONDS:
                yield batch[first:index]
                began, first = time.monotonic(), index
    if first < len(batch):
        yield batch[first:]


Execute = Callable[..., Sequence[Any]]  # of a connection, a batch and how soon producers look by themselves


class StoreSession:
    """A connection to the database, opened when it is needed, for one batch at a time."""

    def __init__(self, url: str, execute: Execute) -> None:
        self._url = url
        self._execute = execute
        self._connection: Connection | None = None
        self.wait_for_locks = True

    def execute(self, batch: Sequence[Any], soon: timedelta) -> Sequence[Any]:
        """Apply the messages in one transaction."""
        if self.wait_for_locks:
            return self._execute(self.connection(), batch, soon)
        return self._execute(self.connection(), batch, soon, wait_for_locks=False)

    def check(self) -> None:
        """Raise Unavailable where nothing could be stored."""
        check(self.connection())

    def connection(self) -> Connection:
        """Return the connection; open it if there is none."""
        if self._connection is None:
            self._connection = connect(self._url, "consumer", lock_timeout=LOCK_TIMEOUT)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class BatchStore:
    """Stores batches on any of its threads, through outages of the database."""

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        self._stop = stop
        self._health = health
        self._keep_seconds = KEEP_SECONDS
        # A producer's own next look comes within its poll interval; a little more covers its sleep's jitter.
        self._soon = timedelta(milliseconds=settings.poll_interval_ms + 100)

    def store(
        self, session: StoreSession, batch: Sequence[Any], check_broker: Callable[[], None]
    ) -> StoredBatch | None:
        """Store the commands, waiting a while for the database if need be; None on a stop."""
        began = time.time_ns()
        if not batch:
            return StoredBatch((), began, began)
        verdicts: list[Any] = []
        locked: set[str] = set()
        for part in split_batch(batch):
            stored = self._store(session, part, check_broker, locked)
            if stored is None:
                return None
            verdicts += stored
            if len(verdicts) < len(batch):  # the later commands about the same keep their order
                locked.update(each.about for each, verdict in zip(part, stored, strict=True) if verdict is LOCKED)
            self._health.turn()
        return StoredBatch(verdicts, began, time.time_ns())

    def _store(
        self, session: StoreSession, batch: Sequence[Any], check_broker: Callable[[], None],
        locked: AbstractSet[str],
    ) -> Sequence[Any] | None:
        until = time.monotonic() + self._keep_seconds
        for delay in backoff(most=5.0):
            started = time.perf_counter()
            try:
                if locked:
                    verdicts: Sequence[Any] = without_locked(
                        batch, locked, lambda rest: session.execute(rest, self._soon)
                    )
                else:
                    verdicts = session.execute(batch, self._soon)
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
                return verdicts
        raise AssertionError  # backoff never ends

    def wait(self, session: StoreSession, check_broker: Callable[[], None]) -> None:
        """After commands were given back, return when the database is there again, or on a stop."""
        self._keep_seconds = min(self._keep_seconds * 2, MOST_KEEP_SECONDS)
        self.when_available(session, session.check, check_broker)

    def when_available(
        self, session: StoreSession, act: Callable[[], Found], check_broker: Callable[[], None]
    ) -> Found | None:
        """Do something with the database as soon as it can be reached; None on a stop."""
        for delay in backoff(most=2.0):
            self._health.turn()
            try:
                found = act()
            except Unavailable as error:
                self._lose(session, error)
            else:
                self._health.found("postgres")
                return found
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
