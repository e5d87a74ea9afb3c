"""Consume the queues of one command, and the queue for replies to a worker's commands."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from uuid import uuid4

import pika
from pika import spec

from scheduler.domain.errors import Unavailable
from scheduler.domain.names import ANSWERS_QUEUE_PREFIX
from scheduler.domain.targets.command import CommandTarget
from scheduler.domain.targets.pools import NORMAL_RANK, in_pool
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.link import Link
from scheduler.rabbit.work_declaration import declare_classes, declare_work


def declare_command(link: Link, name: str, pool: str, queue_type: str) -> dict[str, int]:
    """Declare a pool's queues of a command; return their names, each with the rank of its work."""
    command = in_pool(name, pool)
    declare_work(link, f"{CommandTarget.queue}{command}", f"{CommandTarget.key}{command}", queue_type)
    return {f"{CommandTarget.queue}{command}": NORMAL_RANK} | declare_classes(
        link, f"{CommandTarget.queue}{name}", f"{CommandTarget.key}{name}", pool, queue_type)


class CommandQueue:
    """Delivers up to `window` commands, and the next when one is acknowledged or requeued; or one at a time."""

    def __init__(
        self, link: Link, name: str, command: str, handler: Callable[["CommandQueue", Delivery], None],
        window: int = 1, *, rank: int = NORMAL_RANK,
    ) -> None:
        """Use a declared queue; `handler` is called on the I/O thread once it is opened."""
        self.name = name
        self.command = command  # with its pool
        self.rank = rank
        self._link = link
        self._handler = handler
        self._window = window
        self._tag: str | None = None
        self._on_empty: Callable[[], None] = lambda: None
        self._channel = link.channel()
        self._channel.add_on_cancel_callback(lambda _: link.consumer_cancelled(self.name))
        self._channel.add_callback(lambda _: self._on_empty(), [spec.Basic.GetEmpty], one_shot=False)

    def open(self) -> None:
        """Start consuming. Any thread may call this and the methods below."""

        def act() -> None:
            if self._channel.is_open and self._tag is None:
                self._channel.basic_qos(prefetch_count=self._window)
                self._tag = self._channel.basic_consume(self.name, self._on_message)

        self._post(act)

    def pause(self) -> None:
        """Stop consuming until `open` is called."""

        def act() -> None:
            if self._channel.is_open and self._tag is not None:
                tag, self._tag = self._tag, None
                self._channel.basic_cancel(tag)

        self._post(act)

    def get(self, found: Callable[["CommandQueue", Delivery], None], empty: Callable[[], None]) -> None:
        """Fetch one delivery without consuming; one of the two is called on the I/O thread.

        Call it again only after that.
        """

        def got(_: object, method: spec.Basic.GetOk, properties: pika.BasicProperties, body: bytes) -> None:
            found(self, Delivery(
                method.delivery_tag, method.routing_key, properties, body, method.redelivered, len(body)
            ))

        def act() -> None:
            if self._channel.is_open:
                self._on_empty = empty
                self._channel.basic_get(self.name, got)

        self._post(act)

    def acknowledge(self, tag: int, then: Callable[[], None] | None = None) -> None:
        """Acknowledge a delivery; `then` is called on the I/O thread once the broker has processed that.

        The broker does not reply to an acknowledgement, but it processes the requests of a channel in order.
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
        with contextlib.suppress(Unavailable):  # the broker redelivers everything on the next connection
            self._link.post(act)

    def _on_message(
        self, _: pika.channel.Channel, method: spec.Basic.Deliver, properties: pika.BasicProperties, body: bytes
    ) -> None:
        self._handler(self, Delivery(
            method.delivery_tag, method.routing_key, properties, body, method.redelivered, len(body)
        ))


def consume_replies(link: Link, handler: Callable[[str | None, bytes], None]) -> str:
    """Consume replies: `handler` gets correlation_id and body on the I/O thread. Returns the reply_to."""
    name = f"{ANSWERS_QUEUE_PREFIX}{uuid4()}"
    channel = link.channel()

    def act(future: Future[None]) -> None:
        def on_reply(_: object, __: object, properties: pika.BasicProperties, body: bytes) -> None:
            handler(properties.correlation_id, body)

        channel.queue_declare(name, exclusive=True, auto_delete=True)
        channel.basic_consume(name, on_reply, auto_ack=True, callback=lambda _: future.set_result(None))

    link.call(act)
    return name
