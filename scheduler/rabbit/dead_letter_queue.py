"""What lies in scheduler_dead: looked at, sent again to where it came from, or dropped.

A queue can be looked into only by taking all messages and giving them back, which may change their order. All that
is done goes over one channel, so that what one look has given back is there again for the next.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker, NackError, UnroutableError

from scheduler.domain.errors import SchedulerError
from scheduler.domain.names import COMMANDS_EXCHANGE, DEAD_QUEUE, DELAY_EXCHANGE, DELAYED_EXCHANGE
from scheduler.rabbit.address import parameters, place
from scheduler.rabbit.dead_letter import DeadLetter, read
from scheduler.rabbit.delivery_parser import as_bytes
from scheduler.rabbit.frames import fits
from scheduler.rabbit.link import RabbitUnavailable, reason
from scheduler.rabbit.pika_internals import RawProperties, blocking, frame_max

MOST_LOOKED_AT = 10_000  # in one go
_SILENCE_SECONDS = 0.1
_MOST_SILENCES = 30  # somebody else may have some of them in hand
_NOT_FOUND = 404


class NotReplayable(SchedulerError):  # noqa: N818 - a verdict, not an accident
    """It cannot be sent again: nobody knows where it came from, or nobody takes it there."""


class DeadLetterQueue:
    """The queue, over a connection that is opened when it is needed; one does something with it at a time."""

    def __init__(self, urls: Sequence[str], delay_exchanges: Sequence[tuple[str, str]] = ()) -> None:
        self._urls = urls
        self._lock = threading.Lock()
        self._channel: BlockingChannel | None = None
        self._was_empty = False  # at the last look over this channel
        # No header lets a publisher borrow our rights elsewhere.
        self._exits = {COMMANDS_EXCHANGE, DELAY_EXCHANGE, DELAYED_EXCHANGE}
        for name, _ in delay_exchanges:
            self._exits |= {name, f"{name}.delay"}

    def look(self, limit: int, after: tuple[str, str] = ("", "")) -> list[DeadLetter]:
        """Return what lies there, oldest first; raise RabbitUnavailable where the broker cannot be reached."""
        found = sorted(self._all(), key=lambda letter: letter.place)
        return [each for each in found if each.place > after][:limit]

    def count(self) -> int:
        """Return how many lie there."""
        with self._queue() as channel:
            return _counted(channel)

    def find(self, letter_id: str) -> DeadLetter | None:
        """Return one, None if it is not among the oldest ten thousand."""
        return next((each for each in self._all() if each.id == letter_id), None)

    def replay(self, letter_id: str, apply: Callable[[DeadLetter], bool]) -> DeadLetter | None:
        """Publish a dead letter to its source exchange, and remove it when that is confirmed.

        If `apply` returns True it has applied the letter to the database, and nothing is published.
        """
        with self._queue() as channel:
            letter = _found(channel, letter_id)
            if letter is not None:
                if letter.body_was_cut:
                    raise NotReplayable("only the beginning of its body was kept")
                if not apply(letter):
                    self._send(channel.connection, letter)
                channel.basic_ack(letter.tag)
            return letter

    def drop(self, letter_id: str) -> DeadLetter | None:
        """Remove one for good."""
        with self._queue() as channel:
            letter = _found(channel, letter_id)
            if letter is not None:
                channel.basic_ack(letter.tag)
            return letter

    def close(self) -> None:
        """Hang up."""
        channel, self._channel = self._channel, None
        if channel is not None and channel.connection.is_open:
            with suppress(AMQPError, OSError):
                channel.connection.close()

    def _all(self) -> list[DeadLetter]:
        """Look at everything; a connection that broke since the last look is worth another try."""
        reused = self._channel is not None
        try:
            return self._looked()
        except RabbitUnavailable:
            if not reused:
                raise
            return self._looked()

    def _looked(self) -> list[DeadLetter]:
        with self._queue() as channel:
            # What a look gives back is counted a moment later. Where the last one gave back nothing the count is
            # true, and the queue need not be asked: a quorum queue writes each question to its disk.
            if self._was_empty and not _counted(channel):
                return []
            found = _taken(channel)
            self._was_empty = not found
            return found

    def _send(self, connection: pika.BlockingConnection, letter: DeadLetter) -> None:
        exchange = letter.exchange
        if exchange not in self._exits:
            raise NotReplayable(f"it came from {exchange or 'nobody knows where'}, which is no exchange of ours")
        before = letter.before()
        if not fits(before, frame_max(connection)):
            raise NotReplayable("its properties and headers exceed the connection's frame_max")
        properties = RawProperties(before)
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            channel.basic_publish(exchange, letter.key, letter.body, properties, mandatory=True)
        except UnroutableError:
            raise NotReplayable(f"no queue takes it from {exchange} under {letter.routing_key!r}") from None
        except NackError:
            raise NotReplayable("a queue refused it; it may be full") from None
        except ChannelClosedByBroker as error:
            raise NotReplayable(f"the broker refused it: {error.reply_text}") from None
        finally:
            if channel.is_open:
                channel.close()

    @contextmanager
    def _queue(self) -> Iterator[BlockingChannel]:
        """Lend the channel; what was taken and not settled is given back, whatever happened."""
        with self._lock:
            channel = self._connected()
            try:
                yield channel
                channel.basic_nack(0, multiple=True, requeue=True)
            except (AMQPError, OSError) as error:
                self.close()
                raise RabbitUnavailable(f"RabbitMQ: {reason(error)}") from error
            except BaseException:
                self.close()  # and with it what was taken goes back
                raise

    def _connected(self) -> BlockingChannel:
        channel = self._channel
        if channel is not None:
            try:
                channel.connection.process_data_events()  # one that the broker has given up says so now
            except (AMQPError, OSError):
                channel = None
        if channel is None or not channel.is_open:
            self.close()
            self._was_empty = False
            self._channel = self._open().channel()
        assert self._channel is not None  # noqa: S101 - it was opened
        return self._channel

    def _open(self) -> pika.BlockingConnection:
        problems = []
        for url in self._urls:
            try:
                return blocking(parameters(url, "dead letters"))
            except (AMQPError, OSError) as error:
                problems.append(f"RabbitMQ at {place(url)}: {reason(error)}")
        raise RabbitUnavailable("; ".join(problems))


def _found(channel: BlockingChannel, letter_id: str) -> DeadLetter | None:
    return next((each for each in _taken(channel) if each.id == letter_id), None)


def _taken(channel: BlockingChannel) -> list[DeadLetter]:
    """Take what lies there, as much as one look may; the channel's owner gives it back."""
    waiting = min(_counted(channel), MOST_LOOKED_AT)
    found: list[DeadLetter] = []
    if waiting:
        channel.basic_qos(prefetch_count=MOST_LOOKED_AT)
        silent = 0
        for method, properties, body in channel.consume(DEAD_QUEUE, inactivity_timeout=_SILENCE_SECONDS):
            if method is not None:
                found.append(_letter(method, properties, body))
            silent = silent + 1 if method is None else 0
            if len(found) >= waiting or silent > _MOST_SILENCES:
                break
        channel.cancel()
    # The count may be a moment old, from before the last look gave all back: then the queue is asked itself.
    while not waiting and len(found) < MOST_LOOKED_AT:
        method, properties, body = channel.basic_get(DEAD_QUEUE)
        if method is None:
            break
        found.append(_letter(method, properties, body))
    return found


def _counted(channel: BlockingChannel) -> int:
    """Return how many lie there, or lay there a moment ago."""
    try:
        return int(channel.queue_declare(DEAD_QUEUE, passive=True).method.message_count)
    except ChannelClosedByBroker as error:
        if error.reply_code == _NOT_FOUND:
            raise RabbitUnavailable("RabbitMQ: no scheduler_dead yet; start a consumer or a producer") from None
        raise


def _letter(method: Any, properties: pika.BasicProperties, body: bytes) -> DeadLetter:
    return read(as_bytes(method.routing_key), properties.raw, body, method.delivery_tag)  # as blocking() has them
