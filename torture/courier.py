"""Publishes messages at their times over one connection, with pipelined confirms, until the broker has each."""

import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pika
from pika.exceptions import AMQPError

from torture.history import Record

GIVE_UP_AFTER = 4  # publications of one message without a confirm, after which it counts as rejected


@dataclass
class Message:
    """A message, and the record that keeps its story."""

    exchange: str
    key: str
    body: Callable[[], bytes]
    properties: pika.BasicProperties
    record: Record
    confirmed: Callable[[], None] | None = None


def parameters(url: str) -> pika.URLParameters:
    given = pika.URLParameters(url)
    given.heartbeat = 30
    given.socket_timeout = given.stack_timeout = 20
    given.blocked_connection_timeout = 600
    return given


class Courier:
    """One thread, one connection; messages of one courier are published in the order of their times."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._heap: list[tuple[float, int, Message]] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._unconfirmed: dict[int, Message] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)
        self._thread.start()

    def post(self, message: Message, at: float = 0.0) -> None:
        with self._lock:
            heapq.heappush(self._heap, (at, next(self._numbers), message))

    @property
    def waiting(self) -> int:
        """Due messages that are not confirmed."""
        with self._lock:
            return sum(1 for at, _, _ in self._heap if at <= time.time()) + len(self._unconfirmed)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._serve(pika.BlockingConnection(parameters(self._url)))
            except (AMQPError, OSError):
                with self._lock:
                    for message in self._unconfirmed.values():
                        if message.record["publishes"] < GIVE_UP_AFTER:
                            heapq.heappush(self._heap, (0.0, next(self._numbers), message))
                        else:
                            message.record["gave_up"] = True
                    self._unconfirmed.clear()
                self._stop.wait(0.5)

    def _serve(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        tags = itertools.count(1)

        def on_confirm(frame: Any) -> None:
            method, now = frame.method, time.time()
            done = [tag for tag in self._unconfirmed if tag <= method.delivery_tag] if method.multiple else [
                method.delivery_tag]
            for tag in done:
                message = self._unconfirmed.pop(tag, None)
                if message is None:
                    continue
                refused = isinstance(method, pika.spec.Basic.Nack)
                message.record["refused" if refused else "confirmed"] = now
                if message.confirmed and not refused:
                    message.confirmed()

        channel._impl.confirm_delivery(on_confirm)  # noqa: SLF001 - pika's blocking channel waits for each confirm
        try:
            while not self._stop.is_set():
                sent = 0
                while sent < 50 and (message := self._next()):
                    self._unconfirmed[next(tags)] = message
                    record = message.record
                    record["publishes"] = record.get("publishes", 0) + 1
                    record.setdefault("first", time.time())
                    channel.basic_publish(message.exchange, message.key, message.body(), message.properties)
                    sent += 1
                connection.process_data_events(0 if sent else 0.01)
        finally:
            with contextlib.suppress(Exception):
                connection.close()

    def _next(self) -> Message | None:
        """Take the next due message: one at a time, so that an error loses no others."""
        with self._lock:
            if len(self._unconfirmed) > 500 or not self._heap or self._heap[0][0] > time.time():
                return None
            return heapq.heappop(self._heap)[2]
