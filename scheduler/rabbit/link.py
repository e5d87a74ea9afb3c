"""One connection to RabbitMQ with an I/O thread of its own, behind calls that block.

pika's public way to pipeline confirms is its callback connection. Everything that runs on its thread is
in this package; the processes see plain methods and `Unavailable`.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
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
from scheduler.rabbit.address import OPEN_TIMEOUT, parameters, place
from scheduler.rabbit.delivery_parser import Decode, Handler
from scheduler.rabbit.pika_internals import ReadingConnection

T = TypeVar("T")
_NOT_FOUND = 404
_DROP_SLACK = 5.0
_MOST_DROPPED_AFTER = 60.0  # without heartbeats, or with the broker's own interval


class RabbitUnavailable(Unavailable):
    """RabbitMQ is down, blocks us or does not answer."""


class Link:
    """An open connection. Once closed, for whatever reason, it stays closed: open another."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self.place = place(url)
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
            raise RabbitUnavailable(f"RabbitMQ at {self.place} did not answer in time") from None

    def _run(self) -> None:
        try:
            self._connection.ioloop.start()
        except Exception as error:  # noqa: BLE001 - a broken loop is a lost connection, whatever broke it
            self._lost(error)
        finally:
            self._connection.ioloop.close()  # two sockets of its own, which would else wait for the collector

    def _set_blocked(self, blocked: bool) -> None:
        self.blocked = blocked

    def _lost(self, error: BaseException) -> None:
        if self.closed is None:
            self.closed = f"RabbitMQ at {self.place}: {reason(error)}"
        if not self._opened.done():
            self._opened.set_exception(RabbitUnavailable(self.closed))
        for callback in list(self._on_close):
            callback(self.closed)
        self._connection.ioloop.stop()

    def open_another(self, name: str) -> "Link":
        """Open another connection to the same broker."""
        return Link(self._url, name)

    def on_close(self, callback: Callable[[str], None]) -> None:
        """Have `callback` called on the I/O thread when the connection is lost."""
        self._on_close.append(callback)

    def on_close_no_more(self, callback: Callable[[str], None]) -> None:
        """Forget that callback."""
        with contextlib.suppress(ValueError):  # it was not there
            self._on_close.remove(callback)

    @property
    def user(self) -> str:
        """As whom we are connected: the only `user_id` that the broker lets us send."""
        return str(getattr(self._connection.params.credentials, "username", ""))

    @property
    def frame_max(self) -> int:
        """The longest frame that was agreed with the broker."""
        return int(self._connection.params.frame_max or 131072)

    @property
    def dropped_after(self) -> float:
        """Seconds after which the broker has surely closed the connection of a process that stands still."""
        heartbeat = self._connection.params.heartbeat
        beats = isinstance(heartbeat, int) and heartbeat > 0
        return 2.0 * heartbeat + _DROP_SLACK if beats else _MOST_DROPPED_AFTER

    def check_open(self) -> None:
        """Raise Unavailable if the connection is lost."""
        if self.closed is not None:
            raise RabbitUnavailable(self.closed)

    def check(self) -> None:
        """Raise Unavailable if the connection is lost or the broker refuses publishers."""
        self.check_open()
        if self.blocked:
            raise RabbitUnavailable(f"RabbitMQ at {self.place} blocks publishers: its memory or disk alarm is on")

    def post(self, act: Callable[[], None]) -> None:
        """Run `act` on the I/O thread, soon."""
        self.check_open()
        self._connection.ioloop.add_callback_threadsafe(act)

    def call(self, act: Callable[[Future[T]], Any], timeout: float = OPEN_TIMEOUT) -> T:
        """Run `act` on the I/O thread and wait for the future that it is given."""
        future: Future[T] = Future()

        def lost(why: str) -> None:
            if not future.done():
                future.set_exception(RabbitUnavailable(why))

        def run() -> None:
            self._on_close.append(lost)
            try:
                act(future)
            except Exception as error:  # noqa: BLE001 - handed to the waiting thread
                future.set_exception(error)

        self.post(run)
        try:
            return future.result(timeout)
        except TimeoutError:
            raise RabbitUnavailable(f"RabbitMQ at {self.place} did not answer in time") from None
        except AMQPError as error:
            raise RabbitUnavailable(f"RabbitMQ at {self.place}: {reason(error)}") from error
        finally:
            self.on_close_no_more(lost)

    def channel(self, *, essential: bool = True) -> pika.channel.Channel:
        """Open a channel; should the broker close an essential one later, the whole link counts as lost."""

        def act(future: Future[pika.channel.Channel]) -> None:
            def done(channel: pika.channel.Channel) -> None:
                if essential:
                    channel.add_on_close_callback(lambda _, error: self._channel_lost(error))
                if not future.done():
                    future.set_result(channel)

            self._connection.channel(on_open_callback=done)

        return self.call(act)

    def lacks(self, exchanges: Sequence[str], queues: Sequence[str]) -> bool:
        """Tell whether one of these exchanges or queues does not exist."""
        channel = self.channel(essential=False)

        def act(future: Future[bool]) -> None:
            def closed(_: pika.channel.Channel, error: BaseException) -> None:
                if not future.done():
                    future.set_result(isinstance(error, ChannelClosedByBroker) and error.reply_code == _NOT_FOUND)

            def found(_: Any) -> None:
                answers.append(True)
                if len(answers) == len(exchanges) + len(queues) and not future.done():
                    future.set_result(False)
                    channel.close()

            answers: list[bool] = []
            channel.add_on_close_callback(closed)
            for exchange in exchanges:
                channel.exchange_declare(exchange, passive=True, callback=found)
            for queue in queues:
                channel.queue_declare(queue, passive=True, callback=found)

        return self.call(act)

    def consumer_cancelled(self, queue: str, then: Callable[[str], None] | None = None) -> None:
        """Give the connection up after the broker cancelled a consumer, and say why; only on the I/O thread.

        RabbitMQ cancels a consumer whose queue was deleted, and since 4.3 also one that did not acknowledge in
        time; that one stays suspended until its channel is closed.
        """

        def lost(why: str) -> None:
            self.closed = self.closed or why
            if then is not None:
                then(self.closed)

        def opened(channel: pika.channel.Channel) -> None:
            channel.add_on_close_callback(lambda _, error: lost(_cancelled(queue, error)))
            channel.queue_declare(queue, passive=True, callback=lambda _: lost(_cancelled(queue, None)))

        self._connection.channel(on_open_callback=opened)

    def _channel_lost(self, error: BaseException) -> None:
        by_us = isinstance(error, ChannelClosedByClient)
        if self.closed is None and self._connection.is_open and not by_us:
            self.closed = f"RabbitMQ at {self.place} closed the channel: {reason(error)}"
            self._connection.close()

    def write(self, chunks: Sequence[bytes]) -> None:
        """Send frames that are already encoded; only on the I/O thread.

        pika sends each frame by itself, three for a message; one write for many messages is what makes
        the publisher several times faster (docs/decisions/0002-publishing.md).
        """
        self._connection.write(chunks)

    def read_deliveries(
        self, channel: pika.channel.Channel, consumer_tag: str, handler: Handler, decode: Decode | None = None
    ) -> None:
        """Have what comes for this consumer handed over by the quick way; only on the I/O thread."""
        self._connection.read_deliveries(channel.channel_number, consumer_tag, handler, decode)

    def read_no_deliveries(self) -> None:
        """End that; only on the I/O thread."""
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
    """Say why a consumer was cancelled; `error` is the answer to the question whether its queue exists."""
    if error is None:
        return (f"RabbitMQ cancelled the consumer of {queue}, which exists: deliveries were not acknowledged "
                "within its consumer timeout, or its node is gone; consuming again on the next connection")
    if isinstance(error, ChannelClosedByBroker) and error.reply_code == _NOT_FOUND:
        return f"the queue {queue} was deleted; it is declared again on the next connection"
    return (f"RabbitMQ cancelled the consumer of {queue} (consumer timeout or queue deleted); consuming again on "
            "the next connection")


def reason(error: BaseException) -> str:
    """Say what pika means in one line."""
    if isinstance(error, ProbableAuthenticationError | ProbableAccessDeniedError):
        return f"refused our user or virtual host ({type(error).__name__}); check AMQP_URL"
    text = " ".join(str(error).split()) or repr(error)
    return f"{type(error).__name__}: {text}"[:500]
