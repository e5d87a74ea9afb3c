"""An event loop in a separate thread, for async handlers."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from scheduler.client.work import StopReason

OnStop = Callable[[Callable[[StopReason], None]], None]


class EventLoop:
    """Runs awaitables for other threads; the thread starts with the first of them."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def run(self, awaitable: Awaitable[Any], on_stop: OnStop, timeout: float | None = None) -> Any:
        """Return the awaitable's result or raise its error; cancel it after `timeout` seconds."""
        loop = self._started()
        ended = threading.Event()
        outcome: list[tuple[Any, BaseException | None]] = []

        async def captured() -> None:
            try:
                outcome.append((await awaitable, None))
            except BaseException as error:  # noqa: BLE001 - SystemExit would end the loop itself
                outcome.append((None, error))

        tasks: list[asyncio.Task[None]] = []
        cancelled = False

        def start() -> None:
            task = loop.create_task(captured())
            tasks.append(task)
            task.add_done_callback(lambda _: ended.set())

        def cancel(_: StopReason) -> None:
            loop.call_soon_threadsafe(lambda: tasks[0].cancel())  # noqa: PLW0108 - `start` runs before it

        loop.call_soon_threadsafe(start)  # keeps this thread's context
        on_stop(cancel)
        if not ended.wait(timeout):
            cancelled = True
            cancel(StopReason.TIMED_OUT)
            ended.wait()  # a coroutine may clean up first
        timed_out = None if timeout is None or not cancelled else HandlerTimedOut(timeout)
        value, error = outcome[0] if outcome else (None, asyncio.CancelledError())
        if isinstance(error, asyncio.CancelledError) and timed_out is not None:
            raise timed_out
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_serve, args=(self._loop,), name="scheduler loop", daemon=True)
                thread.start()
            return self._loop


class HandlerTimedOut(Exception):  # noqa: N818 - a state, not an error of the kit
    """The handler took longer than its timeout and was stopped."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"the handler took longer than its timeout of {timeout:g} s and was stopped")


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
