"""Consume a work queue; attempts are acknowledged in any order, when their results are confirmed."""

import struct
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

import pika
from pika import spec

from scheduler.domain.targets.pools import NORMAL_RANK
from scheduler.rabbit.delivery_parser import Delivery, decoded_if_headers
from scheduler.rabbit.link import Link

_ACK = struct.Struct(">BHIIQBB")
_ACK_SIZE = 13  # bytes of the method


class WorkQueue:
    """Consumes one queue, with at most `prefetch` deliveries not yet acknowledged."""

    def __init__(
        self, link: Link, queue: str, prefetch: int, handler: Callable[["WorkQueue", Delivery], None], *,
        quick: bool = False, rank: int = NORMAL_RANK,
    ) -> None:
        """Consume; `handler` gets this queue and each delivery on the I/O thread, perhaps before __init__ returns.

        One queue of a link can be quick: its deliveries are parsed without pika. `rank` is the class of its work.
        """
        self.rank = rank
        self._link = link
        self._queue = queue
        self._handler = partial(handler, self)
        self._quick = quick
        self._tag = ""
        self._all_up_to = 0  # this delivery and all before it are acknowledged
        self._beyond: set[int] = set()  # acknowledged deliveries after it
        self._channel = link.channel()
        self._channel.add_on_cancel_callback(lambda _: link.consumer_cancelled(queue))
        link.call(lambda future: self._consume(prefetch, future))

    def _consume(self, prefetch: int, future: Future[None]) -> None:
        def consuming(frame: pika.frame.Method) -> None:
            self._tag = frame.method.consumer_tag
            if self._quick:
                self._link.read_deliveries(self._channel, self._tag, self._on_deliveries, decoded_if_headers)
            if not future.done():
                future.set_result(None)

        self._channel.basic_qos(prefetch_count=prefetch)
        self._channel.basic_consume(self._queue, self._on_message, callback=consuming)

    def _on_message(
        self, _: pika.channel.Channel, method: spec.Basic.Deliver, properties: pika.BasicProperties, body: bytes
    ) -> None:
        self._handler(
            Delivery(method.delivery_tag, method.routing_key, properties, body, method.redelivered, len(body))
        )

    def _on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._handler(delivery)

    def ack(self, tags: Sequence[int]) -> None:
        """Acknowledge deliveries in any order, with one write. Any thread may call it."""

        if tags and self._link.closed is None:
            self._link.post(lambda: self.ack_here(tags))

    def ack_here(self, tags: Sequence[int]) -> None:
        """Acknowledge deliveries at once; only on the I/O thread."""
        if not self._channel.is_open:
            return
        number, together, single = self._channel.channel_number, 0, []
        self._beyond.update(tags)
        while self._all_up_to + 1 in self._beyond:
            self._all_up_to += 1
            self._beyond.discard(self._all_up_to)
        for tag in tags:
            if tag > self._all_up_to:
                single.append(_ack(number, tag, multiple=False))
            else:
                together = max(together, tag)
        # One acknowledgement covers all before the first unsettled delivery: each is an entry in the queue's log.
        if together:
            single.append(_ack(number, together, multiple=True))
        self._link.write([b"".join(single)])

    def stop(self) -> None:
        """Stop consuming; received deliveries can still be acknowledged."""

        def act(future: Future[None]) -> None:
            def stopped(_: object = None) -> None:
                if self._quick:
                    self._link.read_no_deliveries()
                if not future.done():
                    future.set_result(None)

            if self._channel.is_open and self._tag:
                self._channel.basic_cancel(self._tag, callback=stopped)
            else:
                stopped()

        self._link.call(act, timeout=1.0)


def _ack(channel: int, tag: int, *, multiple: bool) -> bytes:
    return _ACK.pack(spec.FRAME_METHOD, channel, _ACK_SIZE, spec.Basic.Ack.INDEX, tag, multiple, spec.FRAME_END)
