"""Consume messages of scheduler_dead, up to limits of bytes and time, and requeue them in their order.

A body can only be received whole, so the prefetch is small: as many messages as are likely to have WINDOW_BYTES.

A quorum queue puts requeued messages behind messages requeued earlier. So a reader consumes everything that
the previous one requeued, also beyond the limit. RabbitMQ keeps no order between the consumers of a channel. A
quorum queue keeps none among more than 32 messages that are requeued together, nor among more than 32 pending
commands. So messages are requeued in small groups, few at once.
"""

import time
from collections.abc import Generator
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from scheduler.domain.names import DEAD_QUEUE
from scheduler.rabbit.dead_letter import DeadLetter, read
from scheduler.rabbit.delivery_parser import as_bytes
from scheduler.rabbit.link import RabbitUnavailable

Message = tuple[Any, pika.BasicProperties, bytes]

MAX_LETTERS = 10_000
MAX_BYTES = 64 * 1024 * 1024
MAX_SECONDS = 10.0
WINDOW_BYTES = 4 * 1024 * 1024
_FIRST_WINDOW, _MAX_WINDOW = 8, 256  # letters
_GROUP = 32  # letters
_MAX_GROUPS = 16  # requeued at once
_RETURN_SECONDS = 2.0  # for their requeuing; another client may consume them
_SILENCE_SECONDS = 0.1
_MAX_SILENCES = 30  # another process may be holding some of the messages
_POLL_SECONDS = 0.01
_NOT_FOUND = 404


class DeadLetterReader:
    """Reads the queue once, from its head."""

    def __init__(self, channel: BlockingChannel, returned: int = 0) -> None:
        """Prepare to read; the previous reader requeued `returned` letters."""
        self._channel = channel
        self._returned = returned
        self._until = time.monotonic() + MAX_SECONDS
        self._bytes = self._largest = self._waiting = 0
        self._stopped = False
        self._groups: list[list[int]] = []  # delivery tags of consumed messages
        self.taken = 0

    @property
    def stopped(self) -> str | None:
        """Return the extent of the read if a limit ended it, otherwise None."""
        if not self._stopped:
            return None
        return (f"only the first {self.taken:,} messages were read ({self._bytes:,} bytes): "
                "replay or delete these to see the others")

    def letters(self) -> Generator[DeadLetter, None, None]:
        """Yield letters with their whole bodies until a limit is reached."""
        self._waiting = count_letters(self._channel)
        window = _FIRST_WINDOW
        while not self._exhausted():
            # The count may be out of date; only basic.get proves that the queue is empty.
            if self.taken >= self._waiting:
                message = self._channel.basic_get(DEAD_QUEUE)
                if message[0] is None:
                    return
                self._groups.append([])
                self._count(message)
                yield _letter(*message)
            size, taken = min(window, MAX_LETTERS), self.taken
            if self._waiting > taken:
                size = min(size, self._waiting - taken)
            self._largest = 0
            messages = self._window(size)
            try:
                for message in messages:
                    yield _letter(*message)
                    del message
                    if self._exhausted():
                        break
            finally:
                for _ in messages:  # the rest of the window, if a limit was reached
                    pass
                self._channel.cancel()
            if self.taken < self._waiting and self.taken - taken < size:
                return  # another process holds the others
            window = max(1, min(_MAX_WINDOW, WINDOW_BYTES // max(1, self._largest)))
        self._stopped = True

    def remove(self, letter: DeadLetter) -> None:
        """Delete a letter that was taken."""
        self._channel.basic_ack(letter.tag)
        self.taken -= 1
        for group in self._groups:
            if letter.tag in group:
                group.remove(letter.tag)

    def requeue(self) -> None:
        """Requeue the letters that were not removed, and wait for it."""
        groups, self._groups = [group for group in self._groups if group], []
        for first in range(0, len(groups), _MAX_GROUPS):
            expected = count_letters(self._channel)
            for group in groups[first : first + _MAX_GROUPS]:
                expected += len(group)
                self._channel.basic_nack(group[-1], multiple=True, requeue=True)
            until = time.monotonic() + _RETURN_SECONDS
            while count_letters(self._channel) < expected and time.monotonic() < until:
                self._channel.connection.sleep(_POLL_SECONDS)

    def _exhausted(self) -> bool:
        most = MAX_BYTES if self.taken >= self._returned else 2 * MAX_BYTES
        return self.taken >= MAX_LETTERS or self._bytes >= most or time.monotonic() > self._until

    def _window(self, size: int) -> Generator[Message, None, None]:
        """Yield as many messages, or fewer if the queue is silent for a while."""
        self._channel.basic_qos(prefetch_count=size)
        self._groups.append([])
        silent = received = 0
        for message in self._channel.consume(DEAD_QUEUE, inactivity_timeout=_SILENCE_SECONDS):
            if message[0] is None:
                silent += 1
            else:
                silent, received = 0, received + 1
                self._count(message)
                yield message
            if received == size or silent > (_MAX_SILENCES if self.taken < self._waiting else 0):
                return

    def _count(self, message: Message) -> None:
        if len(self._groups[-1]) == _GROUP:
            self._groups.append([])
        self._groups[-1].append(message[0].delivery_tag)
        size = len(message[2]) + len(message[1].raw)
        self.taken += 1
        self._bytes += size
        self._largest = max(self._largest, size)


def count_letters(channel: BlockingChannel) -> int:
    """Return the queue's message count, which may be slightly out of date."""
    try:
        return int(channel.queue_declare(DEAD_QUEUE, passive=True).method.message_count)
    except ChannelClosedByBroker as error:
        if error.reply_code == _NOT_FOUND:
            raise RabbitUnavailable("RabbitMQ: no scheduler_dead yet; start a consumer or a producer") from None
        raise


def _letter(method: Any, properties: pika.BasicProperties, body: bytes) -> DeadLetter:
    return read(as_bytes(method.routing_key), properties.raw, body, method.delivery_tag)
