"""Work on the database for requests: on threads of its own, and no request waits long for another's slow query."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from scheduler.api.problems import Away
from scheduler.domain.errors import Unavailable
from scheduler.ops.health import HealthPart
from scheduler.postgres.connection import Connection
from scheduler.postgres.pool import Pool

T = TypeVar("T")
Work = Callable[[Connection], T]

LONGEST_WAIT = 3.0  # seconds that a piece of work may wait for a thread
_MOST_WAITING = 500
_READ_ONLY = {"default_transaction_read_only": "on"}


class Lane:
    """Threads and connections for work of one kind: as many of the one as of the other."""

    def __init__(self, url: str, name: str, size: int, *, autocommit: bool, **session: str) -> None:
        self._pool = Pool(url, f"api {name}", autocommit=autocommit, **session)
        self._threads = ThreadPoolExecutor(size, thread_name_prefix=f"api {name}")
        self._waiting = 0

    async def run(self, work: Work[T]) -> T:
        """Do the work on a connection; raise Away when all are busy, Unavailable without a database."""
        if self._waiting >= _MOST_WAITING:
            raise Away("Too many requests wait for the database already.")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._do, work, time.monotonic() + LONGEST_WAIT)
        finally:
            self._waiting -= 1

    def _do(self, work: Work[T], until: float) -> T:
        if time.monotonic() > until:
            raise Away("The database is busy with slow requests.")
        with self._pool.lend() as connection:
            return work(connection)

    def close(self) -> None:
        """Let go of threads and connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.close()


class Database:
    """Reading by key, looking through many rows, and writing: each in a lane of its own."""

    def __init__(self, url: str, connections: int, health: HealthPart | None = None) -> None:
        self._health = health
        self._reads = Lane(url, "reads", connections, autocommit=True, statement_timeout="3s", **_READ_ONLY)
        self._searches = Lane(
            url, "searches", max(2, connections // 2), autocommit=True, statement_timeout="5s", **_READ_ONLY
        )
        self._writes = Lane(
            url, "writes", connections, autocommit=False, statement_timeout="8s", lock_timeout="5s"
        )

    async def read(self, work: Work[T]) -> T:
        """Read by key."""
        return await self._run(self._reads, work)

    async def search(self, work: Work[T]) -> T:
        """Read what may take a while."""
        return await self._run(self._searches, work)

    async def write(self, work: Work[T]) -> T:
        """Write; the work commits by itself."""
        return await self._run(self._writes, work)

    async def _run(self, lane: Lane, work: Work[T]) -> T:
        try:
            found = await lane.run(work)
        except Unavailable as error:
            raise Away(str(error)) from None
        if self._health is not None:
            self._health.found("postgres")
        return found

    def close(self) -> None:
        """Let go of everything."""
        for lane in (self._reads, self._searches, self._writes):
            lane.close()
