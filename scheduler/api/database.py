"""Work on the database for requests: on threads of its own, and no request waits long for another's slow query."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from scheduler.api.problems import ServiceUnavailable
from scheduler.domain.errors import Unavailable
from scheduler.ops.health import HealthPart
from scheduler.postgres.connection import ClientTimeouts, Connection
from scheduler.postgres.pool import DatabasePool, Outage

T = TypeVar("T")
Work = Callable[[Connection], T]

LONGEST_WAIT = 3.0  # seconds that a piece of work may wait for a thread
_MOST_WAITING = 500
# A database that does not answer is given up soon after the statement's own timeout.
_CONNECT_SECONDS = 5
_ANSWER_SLACK_SECONDS = 2.0
_READ_ONLY = {"default_transaction_read_only": "on"}


class QueryExecutor:
    """Threads and connections for work of one kind: as many of the one as of the other.

    The standard library's executor takes twice the processor time for it.
    """

    def __init__(
        self, url: str, name: str, size: int, *, autocommit: bool, outage: Outage, seconds: int, **session: str
    ) -> None:
        """Allow a statement so many seconds."""
        self._pool = DatabasePool(
            url, f"api {name}", autocommit=autocommit, outage=outage, statement_timeout=f"{seconds}s",
            timeouts=ClientTimeouts(_CONNECT_SECONDS, seconds + _ANSWER_SLACK_SECONDS), **session,
        )
        self._name = f"api {name}"
        self._size = size
        self._threads: list[threading.Thread] = []
        self._asked: queue.SimpleQueue[_QueryTask | None] = queue.SimpleQueue()
        self._waiting = 0

    async def run(self, work: Work[T]) -> T:
        """Run the work on a connection. Raises ServiceUnavailable if all are busy, Unavailable on an outage."""
        if self._waiting >= _MOST_WAITING:
            raise ServiceUnavailable("Too many requests wait for the database already.")
        if self._waiting >= len(self._threads) < self._size:
            self._threads.append(threading.Thread(target=self._serve, name=self._name))
            self._threads[-1].start()
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            done: asyncio.Future[T] = loop.create_future()
            self._asked.put(_QueryTask(work, time.monotonic() + LONGEST_WAIT, loop, done))
            return await done
        finally:
            self._waiting -= 1

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            result: tuple[Any, BaseException | None]
            try:
                result = (self._do(asked), None)
            except BaseException as error:  # noqa: BLE001 - raised again where the work was asked for
                result = (None, error)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                asked.loop.call_soon_threadsafe(_set_result, asked.done, *result)
            del asked, result  # or its rows would stay until the next is asked for

    def _do(self, asked: "_QueryTask") -> Any:
        if time.monotonic() > asked.until:
            raise ServiceUnavailable("The database is busy with slow requests.")
        return self._pool.run(asked.work)

    def close(self) -> None:
        """Let go of threads and connections."""
        while not self._asked.empty():
            self._asked.get()
        for _ in self._threads:
            self._asked.put(None)
        self._pool.close()


@dataclass(slots=True)
class _QueryTask:
    """A piece of work, when it is too late for it, and where its end is told."""

    work: Work[Any]
    until: float
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[Any]"


def _set_result(done: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if done.done():
        return  # nobody waits for it any more
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


class Database:
    """Reading by key, looking through many rows, and writing: each in a lane of its own."""

    def __init__(self, url: str, connections: int, health: HealthPart | None = None) -> None:
        self._health = health
        outage = Outage()  # one for all lanes: when one has reached the database, none says that it is unavailable
        self._reads = QueryExecutor(
            url, "reads", connections, autocommit=True, outage=outage, seconds=3, **_READ_ONLY
        )
        self._searches = QueryExecutor(
            url, "searches", max(2, connections // 2), autocommit=True, outage=outage, seconds=5,
            **_READ_ONLY,
        )
        self._writes = QueryExecutor(
            url, "writes", connections, autocommit=False, outage=outage, seconds=8, lock_timeout="2s"
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

    async def _run(self, lane: QueryExecutor, work: Work[T]) -> T:
        try:
            found = await lane.run(work)
        except Unavailable as error:
            raise ServiceUnavailable(str(error)) from None
        if self._health is not None:
            self._health.found("postgres")
        return found

    def close(self) -> None:
        """Let go of everything."""
        for lane in (self._reads, self._searches, self._writes):
            lane.close()
