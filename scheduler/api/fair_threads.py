"""A thread pool shared fairly by tenants: the tenant with the least recent use is served first."""

import asyncio
import queue
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from scheduler.api.problems import ServiceUnavailable
from scheduler.api.rate_limit import RequestUsage, usage_of_request

T = TypeVar("T")

MAX_WAITING = 500
_HALF_LIFE_SECONDS = 10.0  # after which a use counts half
_MAX_TENANTS = 1000


@dataclass(slots=True)
class _Task:
    work: Callable[[], Any]
    usage: RequestUsage
    expires_at: float
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[Any]"


class FairThreads:
    """A thread pool. A tenant gets all threads except one, so that others do not wait for its long tasks.

    The standard library's executor takes twice the processor time and serves tasks in order of arrival.
    """

    def __init__(self, name: str, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._size = size
        self._share = max(1, size - 1)
        self._clock = clock
        self._threads: list[threading.Thread] = []
        self._started: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._waiting: dict[str, deque[_Task]] = {}
        self._waiting_count = 0
        self._running: Counter[str] = Counter()
        self._running_count = 0
        self._recent: OrderedDict[str, tuple[float, float]] = OrderedDict()  # seconds used, updated at

    async def run(self, work: Callable[[], T], max_wait: float = float("inf")) -> T:
        """Run the work on a thread for the tenant of the current request.

        Raises ServiceUnavailable if too many tasks are waiting, or if this one has waited for `max_wait` seconds.
        """
        if self._waiting_count >= MAX_WAITING:
            raise ServiceUnavailable("Too many requests are waiting; retry later.")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        usage = usage_of_request.get() or RequestUsage()
        task = _Task(work, usage, self._clock() + max_wait, loop, done)
        if self._running_count < self._size and self._running[usage.tenant] < self._share:
            self._start(task)
        else:
            self._waiting.setdefault(usage.tenant, deque()).append(task)
            self._waiting_count += 1
        return await done

    def close(self) -> None:
        """Stop the threads and drop waiting tasks."""
        self._waiting.clear()
        for _ in self._threads:
            self._started.put(None)

    def _start(self, task: _Task) -> None:
        if self._running_count >= len(self._threads):
            self._threads.append(threading.Thread(target=self._serve, name=self._name))
            self._threads[-1].start()
        self._running[task.usage.tenant] += 1
        self._running_count += 1
        self._started.put(task)

    def _serve(self) -> None:
        while (task := self._started.get()) is not None:
            result: Any = None
            failure: BaseException | None = None
            began = time.thread_time()
            try:
                result = task.work()
            except BaseException as error:  # noqa: BLE001 - raised again in `run`
                failure = error
            seconds = time.thread_time() - began
            with suppress(RuntimeError):  # the event loop has ended
                task.loop.call_soon_threadsafe(self._finish, task, seconds, result, failure)
            del task, result, failure  # frees the rows before the next task arrives

    def _finish(self, task: _Task, seconds: float, result: Any, failure: BaseException | None) -> None:
        tenant = task.usage.tenant
        self._running_count -= 1
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        self._recent[tenant] = (self._recent_use(tenant) + seconds, self._clock())
        self._recent.move_to_end(tenant)
        if len(self._recent) > _MAX_TENANTS:
            self._recent.popitem(last=False)
        task.usage.spend(seconds=seconds)
        _set_result(task.done, result, failure)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self._running_count < self._size:
            tenants = [tenant for tenant in self._waiting if self._running[tenant] < self._share]
            if not tenants:
                return
            tenant = min(tenants, key=self._recent_use)
            tasks = self._waiting[tenant]
            task = tasks.popleft()
            self._waiting_count -= 1
            if not tasks:
                del self._waiting[tenant]
            if task.done.done():  # cancelled
                continue
            if self._clock() > task.expires_at:
                task.done.set_exception(ServiceUnavailable("All threads are busy; retry later."))
                continue
            self._start(task)

    def _recent_use(self, tenant: str) -> float:
        seconds, at = self._recent.get(tenant, (0.0, 0.0))
        return seconds * 0.5 ** ((self._clock() - at) / _HALF_LIFE_SECONDS) if seconds else 0.0


def _set_result(done: "asyncio.Future[Any]", result: Any, failure: BaseException | None) -> None:
    if done.done():  # cancelled
        return
    if failure is None:
        done.set_result(result)
    else:
        done.set_exception(failure)
