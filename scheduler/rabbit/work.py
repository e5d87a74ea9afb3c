"""A queue of work: handed over as it comes, acknowledged in any order, each when its result is confirmed."""

from collections.abc import Sequence
from concurrent.futures import Future

import pika
from pika import spec
from pika.frame import Method

from scheduler.rabbit.link import Link
from scheduler.rabbit.reading import Delivery, Handler


class WorkQueue:
    """Consumes one queue, with at most `prefetch` deliveries not yet acknowledged."""

    def __init__(self, link: Link, queue: str, prefetch: int, handler: Handler, *, quick: bool = False) -> None:
        """Have `handler` called on the I/O thread for each delivery; one queue of a link can be the quick one."""
        self._link = link
        self._queue = queue
        self._handler = handler
        self._quick = quick
        self._tag = ""
        self._channel = link.channel()
        self._channel.add_on_cancel_callback(lambda _: self._cancelled())
        link.call(lambda future: self._consume(prefetch, future))

    def _consume(self, prefetch: int, future: Future[None]) -> None:
        def consuming(frame: pika.frame.Method) -> None:
            self._tag = frame.method.consumer_tag
            if self._quick:
                self._link.read_deliveries(self._channel, self._tag, self._handler)
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

    def _cancelled(self) -> None:
        why = f"the queue {self._queue} was deleted; it is declared again on the next connection"
        self._link.closed = self._link.closed or why

    def ack(self, tags: Sequence[int]) -> None:
        """Acknowledge these, in any order; one write for all of them. From any thread."""

        if tags and self._link.closed is None:
            self._link.post(lambda: self.ack_here(tags))

    def ack_here(self, tags: Sequence[int]) -> None:
        """Do so at once; only on the I/O thread."""
        if self._channel.is_open:
            number = self._channel.channel_number
            frames = [Method(number, spec.Basic.Ack(delivery_tag=tag)).marshal() for tag in tags]
            self._link.write([b"".join(frames)])

    def stop(self) -> None:
        """Take no more; what was handed over can still be acknowledged."""

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
