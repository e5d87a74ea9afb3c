"""Run queries on separate threads and connections, so that no request waits long for a slow query."""

import asyncio
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from scheduler.api.fair_threads import FairThreads
from scheduler.api.problems import ServiceUnavailable
from scheduler.api.read_replica import ReadReplica
from scheduler.commands.operator_commands import RowLocked
from scheduler.domain.errors import Unavailable
from scheduler.ops.health import HealthPart
from scheduler.postgres.connection import ClientTimeouts, Connection
from scheduler.postgres.pool import DatabasePool, Outage

T = TypeVar("T")
Work = Callable[[Connection], T]

MAX_WAIT_SECONDS = 3.0  # for a thread
MAX_WRITE_WAIT_SECONDS = 6.0  # the same; writes of one job wait for each other
# How long a write whose rows are locked is begun again: producers may hold them until the broker confirms. Between
# the attempts other writes get the thread.
LOCKED_SECONDS = 6.0
LOCKED_PAUSE_SECONDS = 0.1
# If the database does not reply, the client times out soon after the statement's own timeout.
_CONNECT_SECONDS = 5
_REPLY_SLACK_SECONDS = 2.0
_READ_ONLY = {"default_transaction_read_only": "on"}


class QueryExecutor:
    """Threads for queries of one kind, each with its own connection."""

    def __init__(
        self, url: str, name: str, size: int, *, autocommit: bool, outage: Outage, seconds: int,
        max_wait: float, **session: str
    ) -> None:
        """Limit each statement to `seconds`, and the wait for a thread to `max_wait`."""
        self._max_wait = max_wait
        self._pool = DatabasePool(
            url, f"api {name}", autocommit=autocommit, outage=outage, statement_timeout=f"{seconds}s",
            timeouts=ClientTimeouts(_CONNECT_SECONDS, seconds + _REPLY_SLACK_SECONDS), **session,
        )
        self._threads = FairThreads(f"api {name}", size)

    async def run(self, work: Work[T]) -> T:
        """Run the work. Raises ServiceUnavailable if all threads are busy, Unavailable without a database."""
        return await self._threads.run(lambda: self._pool.run(work), self._max_wait)

    def close(self) -> None:
        """End the threads and close the connections."""
        self._threads.close()
        self._pool.close()


class ReadExecutors:
    """Executors for the reads of one server."""

    def __init__(self, url: str, name: str, connections: int, outage: Outage) -> None:
        self.by_key = QueryExecutor(
            url, f"{name}reads", connections, autocommit=True, outage=outage, seconds=3,
            max_wait=MAX_WAIT_SECONDS, **_READ_ONLY
        )
        size = max(2, connections // 2)
        self.searches = QueryExecutor(
            url, f"{name}searches", size, autocommit=True, outage=outage, seconds=5,
            max_wait=MAX_WAIT_SECONDS, **_READ_ONLY
        )

    def close(self) -> None:
        """Close both executors."""
        self.by_key.close()
        self.searches.close()


class Database:
    """Executors for reads by key, searches and writes; with a replica, most reads use it."""

    def __init__(
        self, url: str, connections: int, health: HealthPart | None = None, *, read_url: str | None = None,
        max_lag: float = 10.0,
    ) -> None:
        self._health = health
        outage = Outage()  # shared: if one executor reaches the database, none reports it unavailable
        self._reads = ReadExecutors(url, "", connections, outage)
        self._writes = QueryExecutor(
            url, "writes", connections, autocommit=False, outage=outage, seconds=8,
            max_wait=MAX_WRITE_WAIT_SECONDS, lock_timeout="2s"
        )
        self._replica_reads: ReadExecutors | None = None
        self.replica: ReadReplica | None = None
        if read_url is not None:
            self._replica_reads = ReadExecutors(read_url, "replica ", connections, Outage())
            self.replica = ReadReplica(self._reads.by_key.run, self._replica_reads.by_key.run, max_lag)

    async def read(self, work: Work[T]) -> T:
        """Read by key."""
        return await self._read("by_key", work)

    async def search(self, work: Work[T]) -> T:
        """Read many rows."""
        return await self._read("searches", work)

    async def read_primary(self, work: Work[T]) -> T:
        """Read by key what must be current."""
        return await self._run(self._reads.by_key, work)

    async def write(self, work: Work[T]) -> T:
        """Write; the work commits its own transaction, and may be repeated after RowLocked."""
        until = time.monotonic() + LOCKED_SECONDS
        try:
            while True:
                try:
                    return await self._run(self._writes, work)
                except RowLocked as locked:
                    if time.monotonic() > until:
                        raise ServiceUnavailable(str(locked)) from None
                await asyncio.sleep(LOCKED_PAUSE_SECONDS)
        finally:
            if self.replica is not None:
                self.replica.wrote()

    async def _read(self, kind: Literal["by_key", "searches"], work: Work[T]) -> T:
        """Read from the replica if it is current; if that fails, from the primary."""
        if self.replica is not None and self.replica.serves():
            executor: QueryExecutor = getattr(self._replica_reads, kind)
            try:
                return await executor.run(work)
            except Unavailable as error:
                self.replica.lost(str(error))
            except ServiceUnavailable:
                pass  # its threads are busy
        return await self._run(getattr(self._reads, kind), work)

    async def _run(self, executor: QueryExecutor, work: Work[T]) -> T:
        try:
            result = await executor.run(work)
        except RowLocked:
            raise
        except Unavailable as error:
            raise ServiceUnavailable(str(error)) from None
        if self._health is not None:
            self._health.found("postgres")
        return result

    def close(self) -> None:
        """Close all executors."""
        for executors in (self._reads, self._writes, self._replica_reads):
            if executors is not None:
                executors.close()
