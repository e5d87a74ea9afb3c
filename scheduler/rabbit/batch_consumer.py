"""Consume commands from one of the sidecar's queues in batches, with explicit acknowledgement."""

import contextlib
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

MAX_BYTES = 16 * 1024 * 1024
BATCH_BYTES = 8 * 1024 * 1024
GROWTH = 8
MAX_SET_ASIDE = 10_000
SUSPECT = DELIVERY_LIMIT // 2  # deliveries after which a message may be the cause of crashes
HOLD_SECONDS = 2.0  # longer than a round trip to the broker


class DeliveryWindow(Enum):
    """Whether the broker may deliver."""

    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class BatchConsumer:
    """Consumes with a window, the maximum number of unacknowledged commands.

    The window starts at one command and grows while it is full of commands without many earlier deliveries. After
    a crash, one of the redelivered messages is at fault. With a small window only that message approaches its
    delivery limit, not the messages behind it.

    Hosts choose the size of messages, and so the memory that a window needs. A window with more than MAX_BYTES is
    closed, and a smaller one opens when there is room. Deliveries that are in flight at that moment are still
    accepted. Only a large excess is requeued, which may change its order.

    Commands that are set aside do not count: when the window is full and half of it is set aside, a new one opens,
    up to MAX_SET_ASIDE commands or MAX_BYTES. Only a full window can be replaced without a cost: a quorum queue
    requeues deliveries in flight to a cancelled consumer, and counts them as deliveries.

    On a slow connection acknowledgements are in flight so long that the window is never full, although it limits
    the throughput. So after two windows of commands the queue is looked up; if enough wait there for a window,
    acknowledgements are held until it is full, or for HOLD_SECONDS.
    """

    def __init__(
        self, link: Link, queue_name: str, prefetch: int, reader: Callable[[Delivery], Any],
        decode: Decode | None = None,
    ) -> None:
        """Consume a queue; `reader` parses deliveries on the I/O thread while the batch before it is stored."""
        self._decode = decode
        self._reader = reader
        self._link = link
        self._queue = queue_name
        self._prefetch = prefetch
        self._waiting: queue.SimpleQueue[list[Delivery] | str] = queue.SimpleQueue()
        self._rest: list[Delivery] = []  # deliveries that exceeded the limit of the last batch
        self._channel = link.channel()
        self._channel.add_on_cancel_callback(lambda _: link.consumer_cancelled(queue_name, self._waiting.put))
        link.on_close(self._waiting.put)
        # Only the I/O thread uses the attributes below.
        self._window, self._size, self._tag = DeliveryWindow.CLOSED, 1, ""
        self._count = self._bytes = 0  # delivered and not yet acknowledged
        self._delivered = 0  # in total
        self._last_tag = self._opened_after = 0  # tags: the last delivery, and the last before the window opened
        self._set_aside: dict[int, int] = {}  # sizes, by tag
        self._set_aside_bytes = 0
        self._used = 0  # delivered through the current window and not yet acknowledged
        self._stuck = 0  # those among `_used` that are set aside
        self.returned = 0  # requeued
        self._when_closed: Callable[[], None] | None = None  # instead of a new window
        self._passed = 0  # acknowledged since the window opened, or since the queue was looked up
        self._looking = self._holding = False
        self._held: list[tuple[list[Delivery], AbstractSet[int]]] = []  # handled, not yet acknowledged
        link.call(self._open)

    def _open(self, future: Future[None] | None = None) -> None:
        def opened(frame: pika.frame.Method) -> None:
            self._window, self._tag = DeliveryWindow.OPEN, frame.method.consumer_tag
            if not self._channel.is_open:
                return
            self._link.read_deliveries(self._channel, self._tag, self._on_deliveries, self._decode)
            if future is not None:
                future.set_result(None)
            if self._when_closed is not None:
                self._reopen(self._size)

        self._window = DeliveryWindow.OPENING
        self._opened_after, self._used, self._stuck, self._passed = self._last_tag, 0, 0, 0
        self._channel.basic_qos(prefetch_count=self._size)  # applies to consumers that start after it
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
            # pika would requeue the delivery that it is still receiving, and later ones would overtake it.
            forget_cancelled(self._channel, self._tag)

    def _open_if_room(self) -> None:
        if self._window is not DeliveryWindow.CLOSED or not self._channel.is_open:
            return
        if self._when_closed is not None:
            self._when_closed()
        elif self._bytes <= MAX_BYTES // 2:
            self._open()

    def _on_message(
        self,
        _: pika.channel.Channel,
        method: spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        # Set by _decode_frame in pika_internals.py.
        raw = properties.raw
        size = len(body) + len(raw)
        self._on_deliveries([
            Delivery(method.delivery_tag, method.routing_key, properties, body, method.redelivered, size, raw)
        ])

    def _on_deliveries(self, deliveries: list[Delivery]) -> None:
        self._last_tag = deliveries[-1].tag
        if self._bytes > 4 * MAX_BYTES:
            self.returned += len(deliveries)
            for delivery in deliveries:
                self._channel.basic_nack(delivery.tag, requeue=True)
            return
        self._count += len(deliveries)
        self._used += len(deliveries)
        self._delivered += len(deliveries)
        self._bytes += _size(deliveries)
        read = self._reader
        for delivery in deliveries:
            delivery.read = read(delivery)
        self._waiting.put(deliveries)
        if self._bytes > MAX_BYTES:
            self._release()
        if self._bytes > MAX_BYTES:
            self._reopen(max(1, self._count // 2))
        elif self._stuck:
            self._make_room()

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        """Wait for a command, then return it with the others that have arrived; [] after the timeout."""
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

    def unget(self, deliveries: list[Delivery]) -> None:
        """Return the last deliveries of the previous `take` to the front for the next one."""
        self._rest = deliveries + self._rest

    @staticmethod
    def _checked(item: list[Delivery] | str) -> list[Delivery]:
        if isinstance(item, str):
            raise RabbitUnavailable(item)
        return item

    def ack(self, batch: Sequence[Delivery], rejected: Sequence[Delivery] = ()) -> None:
        """Acknowledge the oldest unacknowledged commands, or any that were set aside.

        The rejected ones are dead-lettered by the queue.
        """
        batch = list(batch)  # for the I/O thread
        rejected_tags = {delivery.tag for delivery in rejected}

        def act() -> None:
            if not self._channel.is_open:
                return
            self._held.append((batch, rejected_tags))
            if self._holding and self._used < self._size and self._bytes * GROWTH <= MAX_BYTES:
                return
            self._grow(batch[-1])
            self._release()
            self._look_up_queue()

        self._link.post(act)

    def flush(self) -> None:
        """Acknowledge what was handled."""
        self._link.post(self._release)

    def _release(self) -> None:
        held, self._held, self._holding = self._held, [], False
        for batch, rejected_tags in held if self._channel.is_open else ():
            if self._set_aside:
                self._ack_one_by_one(batch, rejected_tags)
            else:
                self._ack_oldest(batch, rejected_tags)

    def _look_up_queue(self) -> None:
        """Hold acknowledgements from now on if the window limits the throughput."""

        def counted(frame: pika.frame.Method) -> None:
            self._looking, self._passed = False, 0
            if frame.method.message_count >= self._size and self._may_grow():
                self._holding = True
                self._link.call_later(HOLD_SECONDS, self._release)

        if self._passed >= 2 * self._size and self._may_grow() and not self._looking:
            self._looking = True
            self._channel.queue_declare(self._queue, passive=True, callback=counted)

    def _may_grow(self) -> bool:
        return self._size < self._prefetch and self._window is DeliveryWindow.OPEN and not self._set_aside

    def _ack_oldest(self, batch: Sequence[Delivery], rejected_tags: AbstractSet[int]) -> None:
        for tag in rejected_tags:
            self._channel.basic_reject(tag, requeue=False)
        accepted = next((delivery.tag for delivery in reversed(batch) if delivery.tag not in rejected_tags), None)
        if accepted is not None:
            self._channel.basic_ack(accepted, multiple=True)
        used = len(batch) if batch[0].tag > self._opened_after else self._in_window(batch)
        self._count -= len(batch)
        self._bytes -= _size(batch)
        self._used -= used
        self._passed += used
        self._open_if_room()

    def _grow(self, last: Delivery) -> None:
        """Open a larger window if this one is full: no delivery is in flight then."""
        if (
            self._size < self._prefetch and self._used == self._size
            and self._bytes * GROWTH <= MAX_BYTES and last.deliveries_before < SUSPECT
        ):
            self._reopen(min(self._size * GROWTH, self._prefetch))

    def set_aside(self, batch: Sequence[Delivery]) -> None:
        """Keep these commands unacknowledged for a long time, while others are delivered and acknowledged."""
        batch = list(batch)
        count, size = len(batch), _size(batch)

        def act() -> None:
            self._grow(batch[-1])
            self._release()
            self._count -= count
            self._bytes -= size
            self._set_aside_bytes += size
            self._set_aside.update((delivery.tag, delivery.size) for delivery in batch)
            self._stuck += self._in_window(batch)
            self._make_room()

        self._link.post(act)

    def _ack_one_by_one(self, batch: Sequence[Delivery], rejected_tags: AbstractSet[int]) -> None:
        """Acknowledge commands while others before them are set aside."""
        for delivery in batch:
            if delivery.tag in rejected_tags:
                self._channel.basic_reject(delivery.tag, requeue=False)
            else:
                self._channel.basic_ack(delivery.tag)
            size = self._set_aside.pop(delivery.tag, None)
            if size is None:
                self._count -= 1
                self._bytes -= delivery.size
            else:
                self._set_aside_bytes -= size
                self._stuck -= delivery.tag > self._opened_after
        self._used -= self._in_window(batch)
        self._make_room()

    def _make_room(self) -> None:
        """Open a new window when the current one is full and half of it is set aside."""
        room = len(self._set_aside) < MAX_SET_ASIDE and self._set_aside_bytes < MAX_BYTES
        if room and self._used == self._size <= 2 * self._stuck and self._channel.is_open:
            self._reopen(self._size)
        self._open_if_room()

    def _in_window(self, batch: Sequence[Delivery]) -> int:
        """Count deliveries through the current window."""
        return sum(delivery.tag > self._opened_after for delivery in batch)

    def count_delivered(self) -> int:
        """Return the number of commands delivered so far, after a round trip to the broker."""

        def act(future: Future[int]) -> None:
            def replied(_: object) -> None:
                if not future.done():
                    future.set_result(self._delivered)

            self._channel.basic_qos(prefetch_count=self._size, callback=replied)

        return self._link.call(act)

    def give_back(self, seconds: float = OPEN_TIMEOUT) -> None:
        """Requeue all unacknowledged commands for other consumers, and stop consuming."""

        self._link.remove_on_close(self._waiting.put)

        def act(future: Future[None]) -> None:
            self._release()
            self._link.read_no_deliveries()
            self._close_channel(future)

        self._link.call(act, seconds)

    def requeue_in_order(self) -> None:
        """Requeue commands that are set aside or not taken yet, in order, and stop consuming.

        All others must be acknowledged. The last window is closed first, so that none is delivered here again.
        Each command is requeued separately: if the channel closes, the broker requeues the windows
        in any order.
        """
        self._link.remove_on_close(self._waiting.put)

        def act(future: Future[None]) -> None:
            self._release()

            def closed() -> None:
                for tag in sorted([*self._set_aside, *self._untaken()]):
                    self._channel.basic_nack(tag, requeue=True)
                self._close_channel(future)

            self._when_closed = closed
            if self._window is DeliveryWindow.OPEN:
                self._reopen(self._size)
            else:
                self._open_if_room()

        self._link.call(act)

    def _close_channel(self, future: Future[None]) -> None:
        """Close the channel, and resolve the future when it is closed."""
        self._channel.add_on_close_callback(lambda *_: None if future.done() else future.set_result(None))
        self._channel.close()

    def _untaken(self) -> list[int]:
        """Return the tags of commands that `take` has not returned."""
        batches, self._rest = [self._rest], []
        with contextlib.suppress(queue.Empty):
            while not isinstance(item := self._waiting.get_nowait(), str):
                batches.append(item)
        return [delivery.tag for batch in batches for delivery in batch]


def _size(deliveries: Sequence[Delivery]) -> int:
    return sum([delivery.size for delivery in deliveries])
