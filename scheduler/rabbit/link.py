"""A connection to RabbitMQ with its own I/O thread and blocking methods.

pika supports pipelined confirms only in its callback connection. All code that runs on its thread is
in this package; processes see plain methods and `Unavailable`.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import pika
from pika.exceptions import (
    AMQPError,
    ChannelClosedByBroker,
    ChannelClosedByClient,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from scheduler.domain.errors import Unavailable
from scheduler.rabbit.address import OPEN_TIMEOUT, broker_name, parameters
from scheduler.rabbit.delivery_parser import Decode, Handler
from scheduler.rabbit.pika_internals import ReadingConnection

T = TypeVar("T")
_NOT_FOUND = 404
_DROP_SLACK = 5.0
_DELETION_SECONDS = 1.0  # RabbitMQ 4.3 needs some of it between a cancel and the end of the queue
_MAX_DROPPED_AFTER = 60.0  # without heartbeats, or with the broker's default interval


class RabbitUnavailable(Unavailable):
    """RabbitMQ is down, blocks publishers or does not respond."""


class Link:
    """An open connection. It stays closed after the first loss: open another one."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self.broker = broker_name(url)
        self._opened: Future[None] = Future()
        self._on_close: list[Callable[[str], None]] = []
        self.closed: str | None = None
        self.blocked = False
        self._connection = ReadingConnection(
            parameters(url, name),
            on_open_callback=lambda _: self._opened.set_result(None),
            on_open_error_callback=lambda _, error: self._lost(error),
            on_close_callback=lambda _, error: self._lost(error),
        )
        self._connection.add_on_connection_blocked_callback(lambda *_: self._set_blocked(True))
        self._connection.add_on_connection_unblocked_callback(lambda *_: self._set_blocked(False))
        self._thread = threading.Thread(target=self._run, name=f"amqp {name}", daemon=True)
        self._thread.start()
        try:
            self._opened.result(OPEN_TIMEOUT * 2)
        except TimeoutError:
            self.close()
            raise RabbitUnavailable(f"RabbitMQ at {self.broker} did not respond in time") from None

    def _run(self) -> None:
        try:
            self._connection.ioloop.start()
        except Exception as error:  # noqa: BLE001 - any error of the loop loses the connection
            self._lost(error)
        finally:
            self._connection.ioloop.close()  # closes its two sockets without waiting for the garbage collector

    def _set_blocked(self, blocked: bool) -> None:
        self.blocked = blocked

    def _lost(self, error: BaseException) -> None:
        if self.closed is None:
            self.closed = f"RabbitMQ at {self.broker}: {reason(error)}"
        if not self._opened.done():
            self._opened.set_exception(RabbitUnavailable(self.closed))
        for callback in list(self._on_close):
            callback(self.closed)
        self._connection.ioloop.stop()

    def open_another(self, name: str) -> "Link":
        """Open another connection to the same broker."""
        return Link(self._url, name)

    def on_close(self, callback: Callable[[str], None]) -> None:
        """Call `callback` on the I/O thread when the connection is lost."""
        self._on_close.append(callback)

    def remove_on_close(self, callback: Callable[[str], None]) -> None:
        """Remove a callback for lost connections."""
        with contextlib.suppress(ValueError):  # already removed
            self._on_close.remove(callback)

    @property
    def user(self) -> str:
        """The connection's broker user: the only `user_id` that the broker accepts from it."""
        return str(getattr(self._connection.params.credentials, "username", ""))

    @property
    def frame_max(self) -> int:
        """The negotiated maximum frame size."""
        return int(self._connection.params.frame_max or 131072)

    @property
    def dropped_after(self) -> float:
        """Seconds after which the broker has certainly closed the connection of a frozen process."""
        heartbeat = self._connection.params.heartbeat
        beats = isinstance(heartbeat, int) and heartbeat > 0
        return 2.0 * heartbeat + _DROP_SLACK if beats else _MAX_DROPPED_AFTER

    def check_open(self) -> None:
        """Raise Unavailable if the connection is lost."""
        if self.closed is not None:
            raise RabbitUnavailable(self.closed)

    def check(self) -> None:
        """Raise Unavailable if the connection is lost or the broker blocks publishers."""
        self.check_open()
        if self.blocked:
            raise RabbitUnavailable(f"RabbitMQ at {self.broker} blocks publishers: its memory or disk alarm is on")

    def post(self, act: Callable[[], None]) -> None:
        """Run `act` on the I/O thread, soon."""
        self.check_open()
        self._connection.ioloop.add_callback_threadsafe(act)

    def call_later(self, seconds: float, act: Callable[[], None]) -> None:
        """Run `act` on the I/O thread after some time; for callers on the I/O thread."""
        self._connection.ioloop.call_later(seconds, act)

    def call(self, act: Callable[[Future[T]], Any], timeout: float = OPEN_TIMEOUT) -> T:
        """Run `act` on the I/O thread and wait for the future passed to it."""
        future: Future[T] = Future()

        def lost(problem: str) -> None:
            if not future.done():
                future.set_exception(RabbitUnavailable(problem))

        def run() -> None:
            self._on_close.append(lost)
            try:
                act(future)
            except Exception as error:  # noqa: BLE001 - passed to the waiting thread
                future.set_exception(error)

        self.post(run)
        try:
            return future.result(timeout)
        except TimeoutError:
            raise RabbitUnavailable(f"RabbitMQ at {self.broker} did not respond in time") from None
        except AMQPError as error:
            raise RabbitUnavailable(f"RabbitMQ at {self.broker}: {reason(error)}") from error
        finally:
            self.remove_on_close(lost)

    def channel(self, *, essential: bool = True) -> pika.channel.Channel:
        """Open a channel; if the broker closes an essential one later, the whole link is lost."""

        def act(future: Future[pika.channel.Channel]) -> None:
            def done(channel: pika.channel.Channel) -> None:
                if essential:
                    channel.add_on_close_callback(lambda _, error: self._channel_lost(error))
                if not future.done():
                    future.set_result(channel)

            self._connection.channel(on_open_callback=done)

        return self.call(act)

    def lacks(self, exchanges: Sequence[str], queues: Sequence[str]) -> bool:
        """Return whether one of these exchanges or queues is missing."""
        channel = self.channel(essential=False)

        def act(future: Future[bool]) -> None:
            def closed(_: pika.channel.Channel, error: BaseException) -> None:
                if not future.done():
                    future.set_result(isinstance(error, ChannelClosedByBroker) and error.reply_code == _NOT_FOUND)

            def declared(_: Any) -> None:
                replies.append(True)
                if len(replies) == len(exchanges) + len(queues) and not future.done():
                    future.set_result(False)
                    channel.close()

            replies: list[bool] = []
            channel.add_on_close_callback(closed)
            for exchange in exchanges:
                channel.exchange_declare(exchange, passive=True, callback=declared)
            for queue in queues:
                channel.queue_declare(queue, passive=True, callback=declared)

        return self.call(act)

    def consumer_cancelled(self, queue: str, then: Callable[[str], None] | None = None) -> None:
        """Close the link with a reason after the broker cancelled a consumer; only on the I/O thread.

        RabbitMQ cancels a consumer whose queue was deleted, and since 4.3 also one that did not acknowledge in
        time; that one stays suspended until its channel is closed. 4.3 cancels before it deletes, so a queue that
        exists is checked once more.
        """

        def lost(problem: str) -> None:
            self.closed = self.closed or problem
            if then is not None:
                then(self.closed)

        def opened(channel: pika.channel.Channel) -> None:
            channel.add_on_close_callback(lambda _, error: lost(_cancelled(queue, error)))
            last = partial(check, channel, lambda: lost(_cancelled(queue, None)))
            check(channel, lambda: self._connection.ioloop.call_later(_DELETION_SECONDS, last))

        def check(channel: pika.channel.Channel, exists: Callable[[], object]) -> None:
            if channel.is_open:  # if not, its close callback has reported why
                channel.queue_declare(queue, passive=True, callback=lambda _: exists())

        self._connection.channel(on_open_callback=opened)

    def _channel_lost(self, error: BaseException) -> None:
        by_us = isinstance(error, ChannelClosedByClient)
        if self.closed is None and self._connection.is_open and not by_us:
            self.closed = f"RabbitMQ at {self.broker} closed the channel: {reason(error)}"
            self._connection.close()

    def write(self, chunks: Sequence[bytes]) -> None:
        """Send frames that are already encoded; only on the I/O thread.

        pika writes each frame separately, three per message. One write for many messages makes
        publishing several times faster (docs/decisions/0002-publishing.md).
        """
        self._connection.write(chunks)

    def read_deliveries(
        self, channel: pika.channel.Channel, consumer_tag: str, handler: Handler, decode: Decode | None = None
    ) -> None:
        """Parse deliveries to this consumer without pika; only on the I/O thread."""
        self._connection.read_deliveries(channel.channel_number, consumer_tag, handler, decode)

    def read_no_deliveries(self) -> None:
        """Stop parsing deliveries without pika; only on the I/O thread."""
        self._connection.deliveries = None

    def close(self) -> None:
        """Close the connection and end its thread."""

        def act() -> None:
            if self._connection.is_open:
                self._connection.close()
            elif not self._connection.is_closing:
                self._connection.ioloop.stop()

        if self._thread.is_alive():
            self._connection.ioloop.add_callback_threadsafe(act)
            self._thread.join(2.0)
        self.closed = self.closed or "closed"


def _cancelled(queue: str, error: BaseException | None) -> str:
    """Describe why a consumer was cancelled; `error` is the result of a passive declaration of its queue."""
    if error is None:
        return (f"RabbitMQ cancelled the consumer of {queue}, which exists: deliveries were not acknowledged "
                "within its consumer timeout, or its node is gone; consuming again on the next connection")
    if isinstance(error, ChannelClosedByBroker) and error.reply_code == _NOT_FOUND:
        return f"the queue {queue} was deleted; it is declared again on the next connection"
    return (f"RabbitMQ cancelled the consumer of {queue} (consumer timeout or queue deleted); consuming again on "
            "the next connection")


def reason(error: BaseException) -> str:
    """Describe an error of pika in one line."""
    if isinstance(error, ProbableAuthenticationError | ProbableAccessDeniedError):
        return f"rejected the user or virtual host ({type(error).__name__}); check AMQP_URL"
    text = " ".join(str(error).split()) or repr(error)
    return f"{type(error).__name__}: {text}"[:500]
