"""The commands waiting in a queue of ours, as batches; acknowledged only when the caller says so."""

import queue
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from enum import Enum, auto
from typing import Any

import pika
from pika import spec

from scheduler.rabbit.address import OPEN_TIMEOUT
from scheduler.rabbit.delivery_parser import Decode, Delivery
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.pika_internals import forget_cancelled
from scheduler.rabbit.topology import DELIVERY_LIMIT

MOST_BYTES = 16 * 1024 * 1024
BATCH_BYTES = 8 * 1024 * 1024
GROWTH = 8
MOST_SET_ASIDE = 10_000
SUSPECT = DELIVERY_LIMIT // 2  # deliveries after which a message may be one that ends the consumer


class DeliveryWindow(Enum):
    """Whether the broker may deliver."""

    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class BatchConsumer:
    """Consumes with a window: so many commands at most are delivered and not yet acknowledged.

    The window begins with one and grows while it is full of commands that were not delivered many times before.
    After a crash the message at fault is somewhere among those that are delivered again, and its delivery limit
    shall count against itself alone, not against all that stand behind it.

    How much memory a window takes is up to the hosts. One that holds more than MOST_BYTES is closed, and a smaller
    one opens when there is room. What is on its way by then still comes in; only where it is far too much the rest
    goes back to the queue, where it may lose its place.

    What is set aside makes room: when the window is full and half of that is set aside, a new one opens, up to
    MOST_SET_ASIDE commands or MOST_BYTES. A window that is full is the only one that can be replaced at no cost:
    a quorum queue takes back what is on its way to a cancelled consumer, and counts that as a delivery.
    """

    def __init__(
        self, link: Link, queue_name: str, prefetch: int, reader: Callable[[Delivery], Any],
        decode: Decode | None = None,
    ) -> None:
        """Consume a queue; `reader` reads each on the I/O thread, while the caller waits for the database."""
        self._decode = decode
        self._reader = reader
        self._link = link
        self._queue = queue_name
        self._prefetch = prefetch
        self._waiting: queue.SimpleQueue[list[Delivery] | str] = queue.SimpleQueue()
        self._rest: list[Delivery] = []  # came with the last batch and had no room in it
        self._channel = link.channel()
        self._channel.add_on_cancel_callback(lambda _: link.consumer_cancelled(queue_name, self._waiting.put))
        link.on_close(self._waiting.put)
        # From here on all belongs to the I/O thread.
        self._window, self._size, self._tag = DeliveryWindow.CLOSED, 1, ""
        self._count = self._bytes = 0  # of what was delivered and not yet acknowledged
        self._delivered = 0  # in all
        self._last_tag = self._opened_after = 0  # of the last delivery, and of the last before the window opened
        self._set_aside: dict[int, int] = {}  # sizes by tag
        self._set_aside_bytes = 0
        self._used = 0  # delivered through the present window and not yet acknowledged
        self._stuck = 0  # of these, how many are set aside
        self.returned = 0  # went back to the queue
        link.call(self._open)

    def _open(self, future: Future[None] | None = None) -> None:
        def opened(frame: pika.frame.Method) -> None:
            self._window, self._tag = DeliveryWindow.OPEN, frame.method.consumer_tag
            if not self._channel.is_open:
                return
            self._link.read_deliveries(self._channel, self._tag, self._on_deliveries, self._decode)
            if future is not None:
                future.set_result(None)

        self._window = DeliveryWindow.OPENING
        self._opened_after, self._used, self._stuck = self._last_tag, 0, 0
        self._channel.basic_qos(prefetch_count=self._size)  # it holds for a consumer that starts after it
        self._channel.basic_consume(self._queue, self._on_message, callback=opened)

    def _reopen(self, size: int) -> None:
        """Close the window, and open one of another size when there is room for it."""

        def closed(_: pika.frame.Method) -> None:
            self._link.read_no_deliveries()
            self._window = DeliveryWindow.CLOSED
            self._open_if_room()

        if self._window is DeliveryWindow.OPEN:
            self._window, self._size = DeliveryWindow.CLOSING, size
            self._channel.basic_cancel(self._tag, callback=closed)
            # pika would give back what it still gathers for this consumer, and those behind would overtake it.
            forget_cancelled(self._channel, self._tag)

    def _open_if_room(self) -> None:
        if self._window is DeliveryWindow.CLOSED and self._bytes <= MOST_BYTES // 2 and self._channel.is_open:
            self._open()

    def _on_message(
        self,
        _: pika.channel.Channel,
        method: spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        # As read by _decoded in pika_internals.py.
        raw = properties.raw
        size = len(body) + len(raw)
        self._on_deliveries([
            Delivery(method.delivery_tag, method.routing_key, properties, body, method.redelivered, size, raw)
        ])

    def _on_deliveries(self, found: list[Delivery]) -> None:
        self._last_tag = found[-1].tag
        if self._bytes > 4 * MOST_BYTES:
            self.returned += len(found)
            for each in found:
                self._channel.basic_nack(each.tag, requeue=True)
            return
        self._count += len(found)
        self._used += len(found)
        self._delivered += len(found)
        self._bytes += _size(found)
        read = self._reader
        for each in found:
            each.read = read(each)
        self._waiting.put(found)
        if self._bytes > MOST_BYTES:
            self._reopen(max(1, self._count // 2))
        elif self._stuck:
            self._make_room()

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        """Wait for a command, then return it with what else is there already; [] when none came."""
        batch, self._rest = self._rest, []
        try:
            batch = batch or self._checked(self._waiting.get(timeout=timeout))
            size = _size(batch)
            while len(batch) < limit and size < BATCH_BYTES:
                more = self._checked(self._waiting.get_nowait())
                size += _size(more)
                batch += more
        except queue.Empty:
            pass
        self._rest = batch[limit:]
        return batch[:limit]

    def put_back(self, deliveries: list[Delivery]) -> None:
        """Have the next `take` begin with these, the last of those that the previous one returned."""
        self._rest = deliveries + self._rest

    @staticmethod
    def _checked(item: list[Delivery] | str) -> list[Delivery]:
        if isinstance(item, str):
            raise RabbitUnavailable(item)
        return item

    def ack(self, batch: Sequence[Delivery], refused: Sequence[Delivery] = ()) -> None:
        """Acknowledge these commands, the oldest that were taken and not acknowledged, or any that were set aside.

        Those refused go where the queue itself sends what nobody wants.
        """
        batch = list(batch)  # for the I/O thread
        count, size = len(batch), _size(batch)
        last = batch[-1]
        out = {each.tag for each in refused}
        taken = next((each.tag for each in reversed(batch) if each.tag not in out), None)

        def act() -> None:
            if not self._channel.is_open:
                return
            self._grow(last)
            if self._set_aside:
                self._ack_one_by_one(batch, out)
                return
            for tag in out:
                self._channel.basic_reject(tag, requeue=False)
            if taken is not None:
                self._channel.basic_ack(taken, multiple=True)
            self._count -= count
            self._bytes -= size
            self._used -= count if batch[0].tag > self._opened_after else self._in_window(batch)
            self._open_if_room()

        self._link.post(act)

    def _grow(self, last: Delivery) -> None:
        """Open a larger window if this one is full: nothing is on its way then."""
        if (
            self._size < self._prefetch and self._used == self._size
            and self._bytes * GROWTH <= MOST_BYTES and last.deliveries_before < SUSPECT
        ):
            self._reopen(min(self._size * GROWTH, self._prefetch))

    def set_aside(self, batch: Sequence[Delivery]) -> None:
        """Keep these commands unacknowledged for long, while others are delivered and acknowledged."""
        batch = list(batch)
        count, size = len(batch), _size(batch)

        def act() -> None:
            self._grow(batch[-1])
            self._count -= count
            self._bytes -= size
            self._set_aside_bytes += size
            self._set_aside.update((each.tag, each.size) for each in batch)
            self._stuck += self._in_window(batch)
            self._make_room()

        self._link.post(act)

    def _ack_one_by_one(self, batch: Sequence[Delivery], out: AbstractSet[int]) -> None:
        """Acknowledge commands while others before them are set aside."""
        for each in batch:
            if each.tag in out:
                self._channel.basic_reject(each.tag, requeue=False)
            else:
                self._channel.basic_ack(each.tag)
            size = self._set_aside.pop(each.tag, None)
            if size is None:
                self._count -= 1
                self._bytes -= each.size
            else:
                self._set_aside_bytes -= size
                self._stuck -= each.tag > self._opened_after
        self._used -= self._in_window(batch)
        self._make_room()

    def _make_room(self) -> None:
        """Open a new window when the present one is full and half of that is set aside."""
        room = len(self._set_aside) < MOST_SET_ASIDE and self._set_aside_bytes < MOST_BYTES
        if room and self._used == self._size <= 2 * self._stuck and self._channel.is_open:
            self._reopen(self._size)
        self._open_if_room()

    def _in_window(self, batch: Sequence[Delivery]) -> int:
        """Count those that were delivered through the present window."""
        return sum(each.tag > self._opened_after for each in batch)

    def count_delivered(self) -> int:
        """Return how many commands were delivered until now, after a round trip to the broker."""

        def act(future: Future[int]) -> None:
            def answered(_: object) -> None:
                if not future.done():
                    future.set_result(self._delivered)

            self._channel.basic_qos(prefetch_count=self._size, callback=answered)

        return self._link.call(act)

    def give_back(self, seconds: float = OPEN_TIMEOUT) -> None:
        """Return every command that is not acknowledged, for other consumers; this inbox ends."""

        self._link.on_close_no_more(self._waiting.put)

        def act(future: Future[None]) -> None:
            self._link.read_no_deliveries()
            self._channel.add_on_close_callback(lambda *_: None if future.done() else future.set_result(None))
            self._channel.close()

        self._link.call(act, seconds)


def _size(deliveries: Sequence[Delivery]) -> int:
    return sum([each.size for each in deliveries])
