"""The queue of one command, taken from one by one; and the queue for answers to what was said of it."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from uuid import uuid4

import pika
from pika import spec
from pika.exceptions import ChannelClosedByBroker

from scheduler.domain.errors import Unavailable
from scheduler.domain.names import ANSWERS_QUEUE_PREFIX, COMMAND_KEY_PREFIX, COMMAND_QUEUE_PREFIX, WORK_EXCHANGE
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.link import Link
from scheduler.rabbit.topology import translated, work_arguments


class CommandQueue:
    """Hands over one delivery or a window of them, and the next when one is acknowledged or given back."""

    def __init__(
        self, link: Link, name: str, queue_type: str, handler: Callable[["CommandQueue", Delivery], None],
        window: int = 1,
    ) -> None:
        """Declare the queue of a command; `handler` is called on the I/O thread once it is opened."""
        self.name = COMMAND_QUEUE_PREFIX + name
        self._link = link
        self._handler = handler
        self._window = window
        self._tag: str | None = None
        self._declare(f"{COMMAND_KEY_PREFIX}{name}", queue_type)
        self._channel = link.channel()
        self._channel.add_on_cancel_callback(lambda _: link.consumer_cancelled(self.name))

    def _declare(self, key: str, queue_type: str) -> None:
        channel = self._link.channel(essential=False)

        def act(future: Future[None]) -> None:
            def closed(_: object, error: BaseException) -> None:
                if not future.done():
                    refused = isinstance(error, ChannelClosedByBroker)
                    future.set_exception(translated(error, self._link.place) if refused else error)

            channel.add_on_close_callback(closed)
            channel.queue_declare(self.name, durable=True, arguments=work_arguments(queue_type))
            channel.queue_bind(self.name, WORK_EXCHANGE, key, callback=lambda _: future.set_result(None))

        self._link.call(act)
        self._link.post(lambda: channel.is_open and channel.close())

    def open(self) -> None:
        """Take the next delivery as soon as there is one; from any thread, like all that follows."""

        def act() -> None:
            if self._channel.is_open and self._tag is None:
                self._channel.basic_qos(prefetch_count=self._window)
                self._tag = self._channel.basic_consume(self.name, self._on_message)

        self._post(act)

    def pause(self) -> None:
        """Take no more until it is opened again."""

        def act() -> None:
            if self._channel.is_open and self._tag is not None:
                tag, self._tag = self._tag, None
                self._channel.basic_cancel(tag)

        self._post(act)

    def acknowledge(self, tag: int, then: Callable[[], None] | None = None) -> None:
        """Acknowledge a delivery; `then` is called on the I/O thread once the broker has taken note of that.

        There is no answer to an acknowledgement; but what comes after it on the same channel is heeded after it.
        """

        def act() -> None:
            if self._channel.is_open:
                self._channel.basic_ack(tag)
                if then is not None:
                    self._channel.basic_qos(prefetch_count=self._window, callback=lambda _: then())

        self._post(act)

    def give_back(self, tag: int) -> None:
        """Return a delivery to the queue, for any worker."""

        def act() -> None:
            if self._channel.is_open:
                self._channel.basic_nack(tag, requeue=True)

        self._post(act)

    def _post(self, act: Callable[[], None]) -> None:
        with contextlib.suppress(Unavailable):  # then all of it comes again by another connection
            self._link.post(act)

    def _on_message(
        self, _: pika.channel.Channel, method: spec.Basic.Deliver, properties: pika.BasicProperties, body: bytes
    ) -> None:
        self._handler(self, Delivery(
            method.delivery_tag, method.routing_key, properties, body, method.redelivered, len(body)
        ))


def consume_replies(link: Link, handler: Callable[[str | None, bytes], None]) -> str:
    """Have `handler` called on the I/O thread with each one's correlation_id and body; return the reply_to."""
    name = f"{ANSWERS_QUEUE_PREFIX}{uuid4()}"
    channel = link.channel()

    def act(future: Future[None]) -> None:
        def came(_: object, __: object, properties: pika.BasicProperties, body: bytes) -> None:
            handler(properties.correlation_id, body)

        channel.queue_declare(name, exclusive=True, auto_delete=True)
        channel.basic_consume(name, came, auto_ack=True, callback=lambda _: future.set_result(None))

    link.call(act)
    return name
