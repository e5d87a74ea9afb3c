"""Hands the events of mainapp_due to the host's handlers: acknowledged after success, never lost."""

import logging
import queue
import random
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import pika
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from scheduler.client.connection import parameters
from scheduler.client.handlers import Handlers, UnknownJobType, UnreadableEvent, handlers
from scheduler.client.retries import DELAYS, Retries
from scheduler.domain.names import DUE_QUEUE

log = logging.getLogger(__name__)
Unknown = Literal["retry", "dead", "drop"]


@dataclass(frozen=True, slots=True)
class _Delivery:
    tag: int
    properties: pika.BasicProperties
    body: bytes


@dataclass(frozen=True, slots=True)
class _Done:
    delivery: _Delivery
    error: BaseException | None


class Runner:
    """Consumes with worker threads; one thread, that of `run`, does all the talking to the broker.

    An event whose handler raises is put into a queue that hands it back after a while, `delays` one after
    the other; then into `mainapp_due_dead`, with the traceback in its headers. A payload that does not fit
    its model goes there at once. `unknown` says what happens to a job type without a handler: `retry` as if
    a handler had failed, which lets a deployment in progress finish; `dead` at once; or `drop` it.
    """

    def __init__(
        self, url: str, *, handlers: Handlers = handlers, workers: int = 4, prefetch: int | None = None,
        delays: Sequence[float] = DELAYS, unknown: Unknown = "retry", queue_name: str = DUE_QUEUE,
        queue_type: str = "quorum", grace: float = 30.0,
    ) -> None:
        """Prepare; `grace` is how long a stop waits for handlers that are at work."""
        self._urls = [part.strip() for part in url.split(",")]
        self._handlers = handlers
        self._workers = workers
        self._prefetch = prefetch or workers * 2
        self._retries = Retries(queue_name, delays, queue_type)
        self._unknown = unknown
        self._grace = grace
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
            with _Session(connection, self._retries, self._handlers, self._workers, self._unknown) as session:
                session.consume(self._prefetch)
                self.ready.set()
                while not self._stop.is_set():
                    session.turn(0.25)
                session.drain(self._grace)
        finally:
            if connection.is_open:
                connection.close()


class _Session:
    """One connection and the threads that work for it; what they did not settle is delivered again."""

    def __init__(
        self, connection: pika.BlockingConnection, retries: Retries, known: Handlers, workers: int,
        unknown: Unknown,
    ) -> None:
        self._connection = connection
        self._retries = retries
        self._handlers = known
        self._unknown = unknown
        self._busy = 0
        self._closing = False
        self._queue_lost = False
        self._done: queue.SimpleQueue[_Done] = queue.SimpleQueue()
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
        while not self._done.empty():
            self._settle(self._done.get_nowait())

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
        error: BaseException | None = None
        try:
            if self._closing:
                error = _Unstarted()
            else:
                self._handlers.dispatch(delivery.body)
        except BaseException as raised:  # noqa: BLE001 - also SystemExit must not lose the event
            error = raised
        self._done.put(_Done(delivery, error))
        try:
            self._connection.add_callback_threadsafe(lambda: None)  # ends the wait in `turn`
        except AMQPError:
            log.warning("the connection was lost before an event was settled: it will be delivered again")

    def _settle(self, done: _Done) -> None:
        self._busy -= 1
        delivery, error = done.delivery, done.error
        if isinstance(error, _Unstarted):
            self._channel.basic_nack(delivery.tag, requeue=True)
            return
        dropped = isinstance(error, UnknownJobType) and self._unknown == "drop"
        if error is not None and not dropped:
            hopeless = isinstance(error, UnreadableEvent) or (
                isinstance(error, UnknownJobType) and self._unknown == "dead"
            )
            # Only once the copy is confirmed is the original acknowledged: twice perhaps, never not at all.
            target = self._retries.divert(
                self._outgoing, delivery.body, delivery.properties, error, final=hopeless
            )
            log.error("event %s failed and went to %s", delivery.properties.message_id, target, exc_info=error)
        self._channel.basic_ack(delivery.tag)


class _QueueDeletedError(AMQPError):  # type: ignore[misc]  # pika has no types
    """Somebody deleted the queue: it is declared again on the next connection."""


class _Unstarted(Exception):  # noqa: N818 - a mark, never raised
    """The stop came before the handler began."""
