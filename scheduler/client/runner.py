"""Run the host's handlers for the events of mainapp_due."""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence

import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

from scheduler.client.connection import parameters, translated
from scheduler.client.errors import AccessRefused, BrokerUnavailable
from scheduler.client.executor import ExecutionObserver, Executor, HandlerEvent
from scheduler.client.handlers import Handlers, handlers
from scheduler.client.process_child import active
from scheduler.client.reporter import HEARTBEAT, AttemptReporter, worker_name
from scheduler.client.retries import DELAYS, RetryQueues
from scheduler.client.session import FailurePolicy, RunnerSession, RunnerState, Unknown
from scheduler.client.signals import stop_on_signal
from scheduler.client.work import WorkSet, WorkState
from scheduler.domain.message_base import LIFETIME
from scheduler.domain.names import DUE_QUEUE
from scheduler.rabbit import address

log = logging.getLogger(__name__)
WORKERS = 4  # handlers at a time
FLUSH_SECONDS = 5.0  # after the grace period, to report stopped handlers


class Runner:
    """Runs handlers in worker threads; only the thread of `run` uses the broker.

    For untracked jobs: an event whose handler raises is retried after each of `delays`, then moved to
    `mainapp_due_dead` with the traceback in its headers. A payload that does not match its model moves there
    immediately. `unknown` applies to job types without a handler: `retry` handles them as failures, so that a
    deployment can finish; `dead` moves them to the dead queue; `drop` acknowledges them.

    For tracked jobs: the sidecar gets a heartbeat within every `heartbeat` seconds, then the result, and retries
    by the job's policy. The event is acknowledged once the broker has confirmed the first heartbeat.

    A Runner runs one attempt at an event at a time.
    """

    def __init__(
        self, url: str, *, handlers: Handlers = handlers, workers: int = WORKERS, prefetch: int | None = None,
        delays: Sequence[float] = DELAYS, unknown: Unknown = "retry", queue_name: str = DUE_QUEUE,
        queue_type: str = "quorum", grace: float = 30.0, name: str | None = None, heartbeat: float = HEARTBEAT,
        user_id: str | None = None, before: Callable[[], object] | None = None,
        observer: ExecutionObserver | None = None,
    ) -> None:
        """Configure; `grace` limits how long a stop waits for running handlers, `name` is the worker's name.

        `before` is called in the worker thread before each handler that does not run as a process: for example
        Django's `close_old_connections`. If it raises, the handler is not called, and the event counts as failed.
        `observer` is called around each handler.
        """
        if not 1 <= heartbeat <= LIFETIME:
            raise ValueError(f"heartbeat is from 1 to {LIFETIME:,} seconds, not {heartbeat:g}")
        self._urls = [part.strip() for part in url.split(",")]
        self._grace = grace
        self._stop = threading.Event()
        self._stop_by = float("inf")
        self._session: RunnerSession | None = None
        self._works = WorkSet()
        # `user_id` is the host's AMQP user, if the sidecar takes tenants from it.
        self._reporter = AttemptReporter(heartbeat, user_id)
        self._news: queue.SimpleQueue[HandlerEvent] = queue.SimpleQueue()
        self._executor = Executor(handlers, workers, self._notify, before, observer)
        retries = RetryQueues(queue_name, delays, queue_type)
        self._shared = RunnerState(
            self._works, self._reporter, retries, FailurePolicy(unknown, worker_name(name)), self._news,
            self._executor.submit, self._set_ready, prefetch or workers * 2,
        )
        self.ready = threading.Event()  # set while it consumes or is full

    def run(self) -> None:
        """Handle events until `stop` is called, through any loss of the broker.

        Raises ClientError if the broker rejects the user, the password or the virtual host at the start.
        """
        if active():
            raise RuntimeError("a Runner was started while a child process imported a handler's module: start it "
                               'under `if __name__ == "__main__":`')
        self._stay_connected()
        self._executor.close()

    def _stay_connected(self) -> None:
        delay, attempt, refused, served = 0.1, 0, 0, False
        while not self._finished():
            url = self._urls[attempt % len(self._urls)]
            attempt += 1
            try:
                with translated(url):
                    connection = address.open_connection(parameters(url, "handlers"))
            except BrokerUnavailable as error:
                refused = refused + 1 if isinstance(error, AccessRefused) else 0
                if refused >= len(self._urls) and not served:
                    raise
                log.warning("reconnecting: %s", error)
            else:
                served, refused = True, 0
                self._executor.start()
                if self._serve(connection):
                    delay = 0.1
            if not self._finished():
                pause = threading.Event() if self._stop.is_set() else self._stop
                pause.wait(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
                delay = min(delay * 2, 10.0)

    def _serve(self, connection: pika.BlockingConnection) -> bool:
        """Use a connection until it is lost or the Runner stops; return whether it consumed."""
        session = RunnerSession(connection, self._shared)
        self._session = session
        consumed = False
        try:
            while not self._stop.is_set():
                session.turn()
                consumed = consumed or self.ready.is_set()
            session.drain(self._stop_by)
        except (AMQPError, OSError) as error:
            reason = error.reply_text if isinstance(error, ChannelClosedByBroker) else type(error).__name__
            log.warning("broker lost, reconnecting: %s", reason)
        finally:
            self._session = None
            session.lose()
            _close(connection)
        return consumed

    def _finished(self) -> bool:
        """Return whether all handlers are finished and reported, or the grace period has expired."""
        if not self._stop.is_set():
            return False
        busy = not self._reporter.idle or any(work.state is WorkState.RUNNING for work in self._works)
        return not busy or time.monotonic() >= self._stop_by

    def run_until_signal(self) -> None:
        """Run as a process: SIGTERM or SIGINT stops it gracefully, a second signal ends it immediately."""
        stop_on_signal(self.stop, self._grace + FLUSH_SECONDS)
        self.run()

    def stop(self) -> None:
        """Stop consuming, let running handlers finish, then return from `run`. Thread-safe."""
        if not self._stop.is_set():
            self._stop_by = time.monotonic() + self._grace
            self._stop.set()

    def _notify(self, news: HandlerEvent) -> None:
        self._news.put(news)
        session = self._session
        if session is not None:
            session.wake()

    def _set_ready(self, ready: bool) -> None:
        if ready:
            self.ready.set()
        else:
            self.ready.clear()


def _close(connection: pika.BlockingConnection) -> None:
    try:
        if connection.is_open:
            connection.close()
    except (AMQPError, OSError):
        log.debug("connection lost during close")
