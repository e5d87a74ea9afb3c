"""Hands the events of mainapp_due to the host's handlers: acknowledged after success, never lost."""

import logging
import queue
import random
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Self

import pika
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from scheduler.client.connection import parameters
from scheduler.client.handlers import Handlers, UnknownJobType, UnreadableEvent, handlers
from scheduler.client.reporter import HEARTBEAT, Reporter, worker_name
from scheduler.client.results import Attempt, Snooze, tracked
from scheduler.client.retries import DELAYS, Retries
from scheduler.domain.messages.base import LIFETIME
from scheduler.domain.names import DUE_QUEUE
from scheduler.domain.times import rfc3339

log = logging.getLogger(__name__)
Unknown = Literal["retry", "dead", "drop"]


@dataclass(frozen=True, slots=True)
class _Delivery:
    tag: int
    properties: pika.BasicProperties
    body: bytes


@dataclass(frozen=True, slots=True)
class _Begun:
    delivery: _Delivery
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class _Done:
    delivery: _Delivery
    error: BaseException | None
    result: bytes | None = None  # of a tracked job: what to say of the attempt


class Runner:
    """Consumes with worker threads; one thread, that of `run`, does all the talking to the broker.

    An event whose handler raises is put into a queue that hands it back after a while, `delays` one after
    the other; then into `mainapp_due_dead`, with the traceback in its headers. A payload that does not fit
    its model goes there at once. `unknown` says what happens to a job type without a handler: `retry` as if
    a handler had failed, which lets a deployment in progress finish; `dead` at once; or `drop` it.

    All that is for jobs that are not tracked. Of a tracked one the sidecar is told what became of the attempt, and
    that it is at work, within every `heartbeat` seconds: it tries again, and gives up, by the job's own policy.
    """

    def __init__(
        self, url: str, *, handlers: Handlers = handlers, workers: int = 4, prefetch: int | None = None,
        delays: Sequence[float] = DELAYS, unknown: Unknown = "retry", queue_name: str = DUE_QUEUE,
        queue_type: str = "quorum", grace: float = 30.0, name: str | None = None, heartbeat: float = HEARTBEAT,
        user_id: str | None = None,
    ) -> None:
        """Prepare; `grace` is how long a stop waits for handlers that are at work, `name` what it calls itself."""
        if not 1 <= heartbeat <= LIFETIME:
            raise ValueError(f"heartbeat is from 1 to {LIFETIME:,} seconds, not {heartbeat:g}")
        self._urls = [part.strip() for part in url.split(",")]
        self._handlers = handlers
        self._workers = workers
        self._prefetch = prefetch or workers * 2
        self._retries = Retries(queue_name, delays, queue_type)
        self._unknown = unknown
        self._grace = grace
        self._name = worker_name(name)
        self._heartbeat = heartbeat
        self._user_id = user_id  # the broker's user that we are, where the sidecar takes tenants from it
        self._stop = threading.Event()
        self._connection: pika.BlockingConnection | None = None
        self.ready = threading.Event()  # set while it consumes

    def run(self) -> None:
        """Handle events until `stop` is called, through any loss of the broker."""
        delay, attempt = 0.1, 0
        while not self._stop.is_set():
            url = self._urls[attempt % len(self._urls)]
            try:
                self._serve(url)
                delay = 0.1
            except (AMQPError, OSError) as error:
                log.warning("broker lost, connecting again: %s", type(error).__name__)
                delay = 0.1 if self.ready.is_set() else min(delay * 2, 10.0)
                attempt += 1
                self._stop.wait(delay * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            finally:
                self.ready.clear()

    def run_until_signal(self) -> None:
        """Run as a process of its own: SIGTERM and SIGINT stop it gracefully."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        self.run()

    def stop(self) -> None:
        """Take no more events, let the handlers at work finish, then return from `run`; from any thread."""
        self._stop.set()

    def _serve(self, url: str) -> None:
        connection = pika.BlockingConnection(parameters(url, "handlers"))
        try:
            self._retries.declare(connection)
            reporter = Reporter(connection, self._heartbeat, self._user_id)
            handling = _Handling(self._handlers, self._unknown, self._name)
            with _Session(connection, self._retries, reporter, handling, self._workers) as session:
                session.consume(self._prefetch)
                self.ready.set()
                while not self._stop.is_set():
                    session.turn(0.25)
                session.drain(self._grace)
        finally:
            if connection.is_open:
                connection.close()


@dataclass(frozen=True, slots=True)
class _Handling:
    handlers: Handlers
    unknown: Unknown
    name: str

    def hopeless(self, error: BaseException) -> bool:
        return isinstance(error, UnreadableEvent) or (isinstance(error, UnknownJobType) and self.unknown == "dead")

    def drops(self, error: BaseException | None) -> bool:
        return isinstance(error, UnknownJobType) and self.unknown == "drop"

    def result(
        self, attempt: Attempt, returned: object, error: BaseException | None, times: dict[str, str]
    ) -> bytes:
        """Say what became of an attempt; what nobody will ever handle is given up, as the run must end."""
        if error is None:
            return attempt.succeeded(returned, **times)
        if not isinstance(error, Snooze):
            log.error("attempt %s of event %s failed", attempt.attempt, attempt.event_id, exc_info=error)
        return attempt.failed(error, hopeless=self.hopeless(error) or self.drops(error), **times)


class _Session:
    """One connection and the threads that work for it; what they did not settle is delivered again."""

    def __init__(
        self, connection: pika.BlockingConnection, retries: Retries, reporter: Reporter, handling: _Handling,
        workers: int,
    ) -> None:
        self._connection = connection
        self._retries = retries
        self._reporter = reporter
        self._handling = handling
        self._busy = 0
        self._closing = False
        self._queue_lost = False
        self._told: queue.SimpleQueue[_Begun | _Done] = queue.SimpleQueue()
        self._channel = connection.channel()
        self._outgoing = connection.channel()
        self._outgoing.confirm_delivery()
        self._waiting: queue.SimpleQueue[_Delivery | None] = queue.SimpleQueue()
        # Daemons: a handler that hangs beyond the grace must not keep the process from ending.
        self._threads = [
            threading.Thread(target=self._work, name=f"scheduler handler {number}", daemon=True)
            for number in range(1, workers + 1)
        ]
        self._tag: str | None = None

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        for _thread in self._threads:
            self._waiting.put(None)

    def consume(self, prefetch: int) -> None:
        self._channel.basic_qos(prefetch_count=prefetch)
        self._channel.add_on_cancel_callback(lambda _: self._lose_queue())
        self._tag = self._channel.basic_consume(self._retries.queue, self._on_event)

    def turn(self, seconds: float) -> None:
        """Talk to the broker for a while, or until a handler is done."""
        self._connection.process_data_events(seconds)
        if self._queue_lost:
            raise _QueueDeletedError(self._retries.queue)
        while not self._told.empty():
            told = self._told.get_nowait()
            if isinstance(told, _Begun):
                self._reporter.begin(told.delivery.tag, told.attempt)
            else:
                self._settle(told)
        for tag in self._reporter.turn():
            self._acknowledge(tag)

    def _lose_queue(self) -> None:
        self._queue_lost = True

    def drain(self, grace: float) -> None:
        """Take no more, and settle what is at work; what had not begun goes back to the queue."""
        self._closing = True
        assert self._tag is not None  # noqa: S101 - `consume` came first
        self._channel.basic_cancel(self._tag)
        deadline = time.monotonic() + grace
        while self._busy and time.monotonic() < deadline:
            self.turn(0.25)

    def _on_event(
        self, _: BlockingChannel, method: spec.Basic.Deliver, properties: pika.BasicProperties, body: bytes
    ) -> None:
        self._busy += 1
        self._waiting.put(_Delivery(method.delivery_tag, properties, body))

    def _work(self) -> None:
        while (delivery := self._waiting.get()) is not None:
            self._handle(delivery)

    def _handle(self, delivery: _Delivery) -> None:
        """Run in a worker thread."""
        if self._closing:
            self._tell(_Done(delivery, _Unstarted()))
            return
        attempt = tracked(delivery.body, self._handling.name)
        if attempt is not None:
            self._tell(_Begun(delivery, attempt))
        error: BaseException | None = None
        returned: object = None
        started_at = rfc3339(datetime.now(UTC))
        try:
            returned = self._handling.handlers.dispatch(delivery.body)
        except BaseException as raised:  # noqa: BLE001 - also SystemExit must not lose the event
            error = raised
        result = None
        if attempt is not None:
            times = {"started_at": started_at, "finished_at": rfc3339(datetime.now(UTC))}
            result = self._handling.result(attempt, returned, error, times)
        self._tell(_Done(delivery, error, result))

    def _tell(self, news: _Begun | _Done) -> None:
        self._told.put(news)
        try:
            self._connection.add_callback_threadsafe(lambda: None)  # ends the wait in `turn`
        except AMQPError:
            log.warning("the connection was lost before an event was settled: it will be delivered again")

    def _settle(self, done: _Done) -> None:
        delivery, error = done.delivery, done.error
        if isinstance(error, _Unstarted):
            self._busy -= 1
            self._channel.basic_nack(delivery.tag, requeue=True)
            return
        if done.result is not None:
            self._reporter.end(delivery.tag, done.result)
            return
        if error is not None and not self._handling.drops(error):
            hopeless = self._handling.hopeless(error)
            # Only once the copy is confirmed is the original acknowledged: twice perhaps, never not at all.
            target = self._retries.divert(
                self._outgoing, delivery.body, delivery.properties, error, final=hopeless
            )
            log.error("event %s failed and went to %s", delivery.properties.message_id, target, exc_info=error)
        self._acknowledge(delivery.tag)

    def _acknowledge(self, tag: int) -> None:
        self._busy -= 1
        self._channel.basic_ack(tag)


class _QueueDeletedError(AMQPError):  # type: ignore[misc]  # pika has no types
    """Somebody deleted the queue: it is declared again on the next connection."""


class _Unstarted(Exception):  # noqa: N818 - a mark, never raised
    """The stop came before the handler began."""
