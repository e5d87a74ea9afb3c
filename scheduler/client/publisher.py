"""Publish batches of commands, and wait for their confirms."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import pika
from pika import spec
from pika.adapters.select_connection import IOLoop
from pika.channel import Channel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from scheduler.client.connection import frame_max, parameters, translated
from scheduler.client.errors import BrokerUnavailable
from scheduler.domain.names import COMMANDS_EXCHANGE
from scheduler.rabbit import address

_STALL_SECONDS = 60.0  # without any confirm: then the connection counts as dead
_TICK_SECONDS = 1.0
_CLOSE_SECONDS = 2.0


class PublishOutcome(Enum):
    """The broker's response to a command."""

    CONFIRMED = auto()
    RETURNED = auto()  # no queue accepts it
    REFUSED = auto()
    UNKNOWN = auto()  # the connection was lost, or the caller stopped waiting


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A command to publish to schedule.commands."""

    key: str
    body: bytes
    properties: pika.BasicProperties


class CommandPublisher:
    """A connection with one channel in confirm mode; used by one thread, which also serves its I/O."""

    def __init__(self, url: str, name: str) -> None:
        """Connect; raise BrokerUnavailable if that fails."""
        self._url = url
        self._closed = False
        self._loop = IOLoop()
        self._channel: Channel | None = None
        self._error: BaseException | None = None
        self._outcomes: list[PublishOutcome] = []
        self._messages: Sequence[OutboxMessage] = ()
        self._first_tag = 1
        self._next_tag = 1
        self._returned: set[tuple[str, bytes]] = set()
        with translated(url):
            self._connection = pika.SelectConnection(
                parameters(url, name), on_open_callback=self._on_open, on_open_error_callback=self._on_closed,
                on_close_callback=self._on_closed, custom_ioloop=self._loop,
            )
            self._wait_for_channel()

    @property
    def frame_max(self) -> int:
        """The largest frame that the broker accepts, in bytes."""
        return frame_max(self._connection)

    @property
    def usable(self) -> bool:
        """Whether connection and channel are open, after pending data is read."""
        with contextlib.suppress(AMQPError, OSError):
            self._serve(0.0)
        return self._error is None and self._channel is not None and bool(self._channel.is_open)

    def publish(self, messages: Sequence[OutboxMessage], tick: Callable[[], bool]) -> list[PublishOutcome]:
        """Publish all, then wait for their outcomes.

        `tick` is called about once a second; when it returns False, the rest stays UNKNOWN.
        """
        assert self._channel is not None  # noqa: S101 - `__init__` has opened it
        self._messages = messages
        self._outcomes = [PublishOutcome.UNKNOWN] * len(messages)
        self._first_tag = self._next_tag
        self._returned.clear()
        open_count, stalled_at = len(messages), time.monotonic() + _STALL_SECONDS
        with contextlib.suppress(AMQPError, OSError):  # recorded in `_error`; the outcomes stay UNKNOWN
            for message in messages:
                self._channel.basic_publish(
                    COMMANDS_EXCHANGE, message.key, message.body, message.properties, mandatory=True
                )
                self._next_tag += 1
            while open_count and self._error is None and self._channel.is_open:
                self._serve(_TICK_SECONDS)
                still_open = self._outcomes.count(PublishOutcome.UNKNOWN)
                if still_open < open_count:
                    open_count, stalled_at = still_open, time.monotonic() + _STALL_SECONDS
                if open_count and (not tick() or time.monotonic() > stalled_at):
                    break
        return self._outcomes

    def check(self) -> None:
        """Raise what ended the connection or the channel, if anything did."""
        if self._error is not None:
            with translated(self._url):
                raise self._error

    @property
    def channel_closed(self) -> bool:
        """Whether the broker has closed the channel, because of a message, and not the connection."""
        return isinstance(self._error, ChannelClosedByBroker) and bool(self._connection.is_open)

    def reopen(self) -> None:
        """Open another channel in place of the one that the broker closed."""
        self._channel, self._error, self._next_tag = None, None, 1
        with translated(self._url):
            self._connection.channel(on_open_callback=self._on_channel)
            self._wait_for_channel()

    def _wait_for_channel(self) -> None:
        deadline = time.monotonic() + address.OPEN_TIMEOUT
        while self._channel is None and self._error is None and time.monotonic() < deadline:
            self._serve(_TICK_SECONDS)
        if self._channel is None:
            self.close()
            raise self._error or BrokerUnavailable(f"no response from the broker in {address.OPEN_TIMEOUT:g} s")

    def close(self) -> None:
        """Close the connection without waiting for long; it cannot be used any more."""
        if self._closed:
            return
        with contextlib.suppress(AMQPError, OSError):
            if self._connection.is_open:
                self._connection.close()
            deadline = time.monotonic() + _CLOSE_SECONDS
            while not self._connection.is_closed and time.monotonic() < deadline:
                self._serve(_TICK_SECONDS)
        self._closed = True
        self._loop.close()

    def _serve(self, seconds: float) -> None:
        """Run I/O for `seconds`, or until every outcome is known."""
        if self._closed:
            return
        timer = self._loop.call_later(seconds, self._loop.stop)
        try:
            self._loop.start()
        finally:
            self._loop.remove_timeout(timer)

    def _on_open(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Channel) -> None:
        def ready(_: object) -> None:
            self._channel = channel
            self._loop.stop()

        channel.add_on_close_callback(self._on_closed)
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=ready)

    def _on_closed(self, _: object, error: BaseException | str) -> None:
        # If an open times out, pika's exception is neither of the two.
        cause = error if isinstance(error, AMQPError | OSError) else AMQPError(f"{type(error).__name__}: {error}")
        self._error = self._error or cause
        self._loop.stop()

    def _on_return(
        self, _: Channel, method: spec.Basic.Return, __: pika.BasicProperties, body: bytes
    ) -> None:
        self._returned.add((method.routing_key, body))  # its confirm follows

    def _on_confirm(self, frame: "pika.frame.Method[spec.Basic.Ack | spec.Basic.Nack]") -> None:
        method = frame.method
        last = method.delivery_tag - self._first_tag
        first = 0 if method.multiple else last
        nacked = isinstance(method, spec.Basic.Nack)
        for number in range(max(first, 0), last + 1):
            if self._outcomes[number] is PublishOutcome.UNKNOWN:
                self._outcomes[number] = PublishOutcome.REFUSED if nacked else self._accepted(
                    self._messages[number]
                )
        if PublishOutcome.UNKNOWN not in self._outcomes:
            self._loop.stop()

    def _accepted(self, message: OutboxMessage) -> PublishOutcome:
        returned = (message.key, message.body) in self._returned
        return PublishOutcome.RETURNED if returned else PublishOutcome.CONFIRMED
