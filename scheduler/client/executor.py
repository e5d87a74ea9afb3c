"""Run a limited number of handlers in threads, on an event loop, or in child processes."""

import inspect
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from scheduler.client.event_loop import EventLoop
from scheduler.client.handlers import Due, Handler, Handlers
from scheduler.client.process_handler import HandlerProcess
from scheduler.client.work import Work


@dataclass(frozen=True, slots=True)
class HandlerStarted:
    """A handler has started."""

    work: Work


@dataclass(frozen=True, slots=True)
class HandlerFinished:
    """A handler has ended: it returned something, or raised an error."""

    work: Work
    returned: object
    error: BaseException | None
    started_at: datetime
    finished_at: datetime


HandlerEvent = HandlerStarted | HandlerFinished


class ExecutionObserver(Protocol):
    """Called in the worker threads around each handler."""

    def started(self, work: Work, job_type: str) -> None:
        """A handler starts."""

    def ended(self, work: Work, error: BaseException | None) -> None:
        """It has ended, or its event could not be read."""


class Executor:
    """A fixed number of worker threads, which call `notify`."""

    def __init__(self, handlers: Handlers, workers: int, notify: Callable[[HandlerEvent], None],
                 before: Callable[[], object] | None = None, observer: ExecutionObserver | None = None) -> None:
        self._handlers = handlers
        self._before = before
        self._observer = observer
        self._notify = notify
        self._loop = EventLoop()
        self._started = False
        self._waiting: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        # Daemons: a handler that hangs beyond the grace period must not keep the process from ending.
        self._threads = [
            threading.Thread(target=self._serve, name=f"scheduler handler {number}", daemon=True)
            for number in range(1, workers + 1)
        ]

    def start(self) -> None:
        """Start the threads, unless they run already."""
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()

    def submit(self, work: Work) -> None:
        """Queue an event for the next free thread."""
        self._waiting.put(work)

    def close(self) -> None:
        """End idle threads, and busy threads when their handler returns."""
        for _ in self._threads:
            self._waiting.put(None)
        self._loop.close()

    def _serve(self) -> None:
        while (work := self._waiting.get()) is not None:
            if work.begin():
                self._run(work)

    def _run(self, work: Work) -> None:
        if work.attempt is not None:
            self._notify(HandlerStarted(work))
        returned: object = None
        error: BaseException | None = None
        started_at = datetime.now(UTC)
        try:
            handler, event = self._handlers.read(work.body)
            if self._observer is not None:
                self._observer.started(work, event.job_type)
            returned = self._call(handler, event, work)
        except BaseException as raised:  # noqa: BLE001 - SystemExit must not lose the event either
            error = raised
        if self._observer is not None:
            self._observer.ended(work, error)
        self._notify(HandlerFinished(work, returned, error, started_at, datetime.now(UTC)))

    def _call(self, handler: Handler, event: Due[object], work: Work) -> object:
        if handler.process:
            process = HandlerProcess(handler, event.job_type, work.body)
            work.on_stop(process.stop)
            return process.wait(handler.timeout)
        if self._before is not None:
            self._before()
        returned = handler.handle(event)
        if inspect.isawaitable(returned):
            return self._loop.run(returned, partial(Work.on_stop, work), handler.timeout)
        return returned
