"""Runs the host's handlers on the events of mainapp_due: acknowledged in time, never lost."""

import logging
import queue
import random
import threading
import time
from collections.abc import Sequence

import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

from scheduler.client.connection import parameters, translated
from scheduler.client.errors import AccessRefused, BrokerUnavailable
from scheduler.client.executor import Executor, News
from scheduler.client.handlers import Handlers, handlers
from scheduler.client.process_child import active
from scheduler.client.reporter import HEARTBEAT, AttemptReporter, worker_name
from scheduler.client.retries import DELAYS, RetryQueues
from scheduler.client.session import FailurePolicy, RunnerSession, RunnerState, Unknown
from scheduler.client.signals import stop_on_signal
from scheduler.client.work import WorkSet, WorkState
from scheduler.domain.messages.base import LIFETIME
from scheduler.domain.names import DUE_QUEUE
from scheduler.rabbit import address

log = logging.getLogger(__name__)
FLUSH_SECONDS = 5.0  # after the grace period: to report what was stopped


class Runner:
    """Consumes with worker threads; one thread, that of `run`, does all the talking to the broker.

    An event whose handler raises is put into a queue that hands it back after a while, `delays` one after
    the other; then into `mainapp_due_dead`, with the traceback in its headers. A payload that does not fit
    its model goes there at once. `unknown` says what happens to a job type without a handler: `retry` as if
    a handler had failed, which lets a deployment in progress finish; `dead` at once; or `drop` it.

    All that is for jobs that are not tracked. For a tracked one the sidecar gets a report within every `heartbeat`
    seconds, and the result: it retries, and gives up, by the job's own policy. The event is acknowledged once the
    broker has confirmed the first report.

    No two attempts at one event run side by side in one Runner.
    """

    def __init__(
        self, url: str, *, handlers: Handlers = handlers, workers: int = 4, prefetch: int | None = None,
        delays: Sequence[float] = DELAYS, unknown: Unknown = "retry", queue_name: str = DUE_QUEUE,
        queue_type: str = "quorum", grace: float = 30.0, name: str | None = None, heartbeat: float = HEARTBEAT,
        user_id: str | None = None,
    ) -> None:
        """Prepare; `grace` is how long a stop waits for running handlers, `name` what it calls itself."""
        if not 1 <= heartbeat <= LIFETIME:
            raise ValueError(f"heartbeat is from 1 to {LIFETIME:,} seconds, not {heartbeat:g}")
        self._urls = [part.strip() for part in url.split(",")]
        self._grace = grace
        self._stop = threading.Event()
        self._stop_by = float("inf")
        self._session: RunnerSession | None = None
        self._works = WorkSet()
        # `user_id` is the broker's user that we are, if the sidecar takes tenants from it.
        self._reporter = AttemptReporter(heartbeat, user_id)
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._executor = Executor(handlers, workers, self._tell)
        retries = RetryQueues(queue_name, delays, queue_type)
        self._shared = RunnerState(
            self._works, self._reporter, retries, FailurePolicy(unknown, worker_name(name)), self._news,
            self._executor.submit, self._set_ready, prefetch or workers * 2,
        )
        self.ready = threading.Event()  # set while it consumes, or has as many events as it may have

    def run(self) -> None:
        """Handle events until `stop` is called, through any loss of the broker.

        Raise ClientError if the broker refuses the user, the password or the virtual host from the beginning.
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
                log.warning("connecting again: %s", error)
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
        """Use a connection until it is lost, or the stop; return whether it could be used at all."""
        session = RunnerSession(connection, self._shared)
        self._session = session
        consumed = False
        try:
            while not self._stop.is_set():
                session.turn()
                consumed = consumed or self.ready.is_set()
            session.drain(self._stop_by)
        except (AMQPError, OSError) as error:
            why = error.reply_text if isinstance(error, ChannelClosedByBroker) else type(error).__name__
            log.warning("broker lost, connecting again: %s", why)
        finally:
            self._session = None
            session.lose()
            _close(connection)
        return consumed

    def _finished(self) -> bool:
        """Whether to return from `run`: all handlers have ended and are reported, or the grace is over."""
        if not self._stop.is_set():
            return False
        busy = not self._reporter.idle or any(work.state is WorkState.RUNNING for work in self._works)
        return not busy or time.monotonic() >= self._stop_by

    def run_until_signal(self) -> None:
        """Run as a process of its own: SIGTERM and SIGINT stop it gracefully, a second one ends it at once."""
        stop_on_signal(self.stop, self._grace + FLUSH_SECONDS)
        self.run()

    def stop(self) -> None:
        """Take no more events, let running handlers finish, then return from `run`; from any thread."""
        if not self._stop.is_set():
            self._stop_by = time.monotonic() + self._grace
            self._stop.set()

    def _tell(self, news: News) -> None:
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
        log.debug("the connection was lost while it was closed")
