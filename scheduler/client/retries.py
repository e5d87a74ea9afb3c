"""Queues for failed events: retry queues with delays, then the dead queue."""

import contextlib
import time
import traceback
from collections.abc import Sequence
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from scheduler.domain.names import DUE_QUEUE

ATTEMPT = "x-attempt"  # number of failed attempts
DELAYS = (1.0, 5.0, 30.0, 120.0, 600.0)
_NOT_FOUND = 404
_TRACEBACK = 8000  # characters, from its end: headers travel in one frame


class RetryQueues:
    """Queues that return their messages to the host's queue after a fixed delay.

    They are ordinary queues with a time to live, one for each delay. So `mainapp_due` needs no arguments, a
    waiting event uses no prefetch slot, and its attempt count survives a restart.
    """

    def __init__(self, queue: str, delays: Sequence[float] = DELAYS, queue_type: str = "quorum") -> None:
        self.queue = queue
        self.dead_queue = f"{queue}_dead"
        self._milliseconds = [max(1, round(delay * 1000)) for delay in delays]
        self.dead_arguments: dict[str, Any] = {"x-queue-type": queue_type}
        self.room_arguments = self.dead_arguments | {
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue,
        }
        if queue_type == "quorum":
            # At-least-once returns, and no delivery limit that drops a dead event after a few inspections.
            self.room_arguments |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
            self.dead_arguments["x-delivery-limit"] = 1_000_000

    def declare(self, connection: pika.BlockingConnection) -> bool:
        """Declare the queues; return False if the host's own is missing. Only `mainapp_due` is created."""
        if not _exists(connection, self.queue):
            if self.queue != DUE_QUEUE:
                return False
            with contextlib.closing(connection.channel()) as channel:
                channel.queue_declare(self.queue, durable=True)
        with contextlib.closing(connection.channel()) as channel:
            channel.queue_declare(self.dead_queue, durable=True, arguments=self.dead_arguments)
            for milliseconds in set(self._milliseconds):
                channel.queue_declare(
                    self.room(milliseconds), durable=True,
                    arguments=self.room_arguments | {"x-message-ttl": milliseconds},
                )
        return True

    def room(self, milliseconds: int | str) -> str:
        """Return the name of the queue for one delay."""
        return f"{self.queue}_retry_{milliseconds}ms"

    def divert(
        self, channel: BlockingChannel, body: bytes, original: pika.BasicProperties, error: BaseException,
        *, final: bool,
    ) -> str:
        """Publish a failed event to its next queue, with a confirm; return that queue's name."""
        attempt = attempts(original) + 1
        retry = not final and attempt <= len(self._milliseconds)
        target = self.room(self._milliseconds[attempt - 1]) if retry else self.dead_queue
        headers = _forwarded_headers(original.headers) | {ATTEMPT: attempt, "x-error": _line(error)}
        if not retry:
            text = "".join(traceback.format_exception(error))
            headers |= {
                "x-traceback": text[-_TRACEBACK:],
                "x-failed-at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
        properties = pika.BasicProperties(
            content_type=original.content_type, delivery_mode=2, message_id=original.message_id,
            correlation_id=original.correlation_id, type=original.type, app_id=original.app_id,
            timestamp=original.timestamp, headers=headers,
        )
        channel.basic_publish("", target, body, properties, mandatory=True)
        return target


def attempts(properties: pika.BasicProperties) -> int:
    """Return the number of failed attempts."""
    count = (properties.headers or {}).get(ATTEMPT)
    return count if isinstance(count, int) else 0


def _forwarded_headers(headers: dict[str, Any] | None) -> dict[str, Any]:
    """Return the headers without the broker's history, which would grow with every retry."""
    history = ("x-death", "x-first-death", "x-last-death", "x-delivery-count")
    return {name: value for name, value in (headers or {}).items() if not name.startswith(history)}


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:1000]


def _exists(connection: pika.BlockingConnection, queue: str) -> bool:
    probe = connection.channel()
    try:
        probe.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as error:
        if error.reply_code != _NOT_FOUND:
            raise
        return False
    with contextlib.suppress(AMQPError):
        probe.close()
    return True
