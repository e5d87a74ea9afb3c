"""The commands waiting in scheduler_inbox, as batches; acknowledged only when the caller says so."""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pika
from pika import spec

from scheduler.rabbit.link import BrokerUnavailable, Link
from scheduler.rabbit.topology import INBOX


@dataclass(slots=True)
class Delivery:
    """One command as it came."""

    tag: int
    routing_key: str
    properties: pika.BasicProperties
    body: bytes
    redelivered: bool
    read: Any = None  # what the inbox's reader made of it

    @property
    def deliveries_before(self) -> int:
        """How often it was delivered before without being acknowledged, as far as the broker tells."""
        count = (self.properties.headers or {}).get("x-delivery-count")
        return count if isinstance(count, int) else int(self.redelivered)


class Inbox:
    """Consumes with a bounded prefetch.

    After a crash the message at fault is somewhere among those that are delivered again. So consuming
    starts with a prefetch of one, and widens only when a message comes that was never delivered before:
    the delivery limit then counts against the culprit alone and not against all that stood behind it.
    """

    def __init__(self, link: Link, prefetch: int, reader: Callable[[Delivery], Any]) -> None:
        """Consume; `reader` reads each command on the I/O thread, while the caller waits for the database."""
        self._reader = reader
        self._link = link
        self._prefetch = prefetch
        self._wide = False
        self._waiting: queue.SimpleQueue[Delivery | str] = queue.SimpleQueue()
        self._channel = link.channel()
        self._channel.add_on_cancel_callback(lambda _: self._cancelled())
        link.on_close(self._waiting.put)
        self._tag = self._consume(1)

    def _consume(self, prefetch: int) -> str:
        def act(future: Future[str]) -> None:
            self._channel.basic_qos(prefetch_count=prefetch)
            self._channel.basic_consume(INBOX, self._on_message, callback=lambda frame: started(frame, future))

        def started(frame: pika.frame.Method, future: Future[str]) -> None:
            tag = frame.method.consumer_tag
            self._link.read_deliveries(self._channel, tag, self._on_delivery)
            future.set_result(tag)

        return self._link.call(act)

    def _cancelled(self) -> None:
        why = f"the queue {INBOX} was deleted; it is declared again on the next connection"
        self._link.closed = self._link.closed or why
        self._waiting.put(why)

    def _on_message(
        self,
        _: pika.channel.Channel,
        method: spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        self._on_delivery(method.delivery_tag, method.redelivered, method.routing_key, properties, body)

    def _on_delivery(
        self, tag: int, redelivered: bool, key: str, properties: pika.BasicProperties, body: bytes
    ) -> None:
        delivery = Delivery(tag, key, properties, body, redelivered)
        delivery.read = self._reader(delivery)
        self._waiting.put(delivery)

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        """Wait for a command, then return it with what else is there already; [] when none came."""
        batch: list[Delivery] = []
        try:
            batch.append(self._checked(self._waiting.get(timeout=timeout)))
            while len(batch) < limit:
                batch.append(self._checked(self._waiting.get_nowait()))
        except queue.Empty:
            pass
        if batch and not self._wide and not batch[-1].redelivered:
            self._wide = True
            self.stop()  # a prefetch holds for consumers that start after it
            self._tag = self._consume(self._prefetch)
        return batch

    @staticmethod
    def _checked(item: Delivery | str) -> Delivery:
        if isinstance(item, str):
            raise BrokerUnavailable(item)
        return item

    def ack(self, up_to: int) -> None:
        """Acknowledge every command up to this delivery tag."""
        self._link.post(lambda: self._channel.is_open and self._channel.basic_ack(up_to, multiple=True))

    def give_back(self) -> None:
        """Return every command that is not acknowledged, for other consumers; this inbox ends."""

        def act(future: Future[None]) -> None:
            self._link.read_no_deliveries()
            self._channel.add_on_close_callback(lambda *_: None if future.done() else future.set_result(None))
            self._channel.close()

        self._link.call(act)

    def stop(self) -> None:
        """Take no more commands; those delivered and not acknowledged go back when the link closes."""

        def act(future: Future[None]) -> None:
            self._link.read_no_deliveries()
            self._channel.basic_cancel(self._tag, callback=lambda _: future.set_result(None))

        self._link.call(act)
