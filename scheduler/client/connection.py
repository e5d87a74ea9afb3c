"""A connection with publisher confirms: publishes commands, and waits for replies on request."""

import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pika
from pika.exceptions import (
    AMQPError,
    ChannelClosedByBroker,
    NackError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    UnroutableError,
)
from pika.frame import Header

from scheduler.client.errors import (
    AccessRefused,
    BrokerUnavailable,
    ClientError,
    CommandRejected,
    NoAnswer,
    NoSidecar,
)
from scheduler.domain.errors import Misconfigured, Problem
from scheduler.domain.messages import CalendarAccepted, ScheduleAccepted
from scheduler.domain.names import COMMANDS_EXCHANGE
from scheduler.rabbit import address

_REPLY_TO = "amq.rabbitmq.reply-to"  # RabbitMQ's direct reply-to
_HEARTBEAT = 30
_ACCESS_REFUSED, _NOT_FOUND, _NOT_ALLOWED = 403, 404, 530
_FRAME_MAX = 131072  # bytes: the default of RabbitMQ and pika


class MessageRefused(BrokerUnavailable):
    """The broker rejects this message: it is too large, or the queue is full."""


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Translate pika's errors to ClientErrors without passwords."""
    try:
        yield
    except Misconfigured as error:
        raise ClientError(str(error)) from None
    except UnroutableError:
        raise NoSidecar(
            f"no queue accepts this command from {COMMANDS_EXCHANGE}: start `scheduler consumer` once"
        ) from None
    except NackError:
        raise MessageRefused("the broker rejected the message: the sidecar's queue is full") from None
    except ChannelClosedByBroker as error:
        if error.reply_code == _NOT_FOUND:
            raise NoSidecar(f"{error.reply_text}: start `scheduler consumer` on this virtual host") from None
        raise MessageRefused(f"the broker closed the channel: {error.reply_text}") from None
    except (ProbableAuthenticationError, ProbableAccessDeniedError) as error:
        raise _access_error(url, error) from None
    except (AMQPError, OSError) as error:
        # Only the error's name: the text of some pika errors contains the URL with its password.
        raise _unreachable(url, error) from None


def _unreachable(url: str, error: Exception) -> BrokerUnavailable:
    return BrokerUnavailable(f"the broker at {address.broker_name(url)} cannot be reached: {type(error).__name__}")


def _access_error(url: str, error: AMQPError) -> BrokerUnavailable:
    """Return AccessRefused if pika's text has the broker's code; otherwise the connection was lost."""
    text, who = str(error), f"user {address.user(url)!r}"
    where = f"{address.broker_name(url)}, virtual host {address.virtual_host(url)!r}"
    if not any(f"({code})" in text for code in (_ACCESS_REFUSED, _NOT_ALLOWED)):
        return _unreachable(url, error)
    if isinstance(error, ProbableAuthenticationError):
        return AccessRefused(f"authentication failed for {who} at {where}: check user and password")
    if "not found" in text:
        return AccessRefused(f"the virtual host does not exist: {who} at {where}")
    return AccessRefused(f"the virtual host is not allowed: {who} at {where}; grant the user access to it")


def parameters(url: str, name: str) -> pika.URLParameters:
    """Return the connection parameters from a URL with the sidecar's syntax, including certificates."""
    parsed = address.parameters(url, name)
    options = parse_qs(urlsplit(url).query)
    if "heartbeat" not in options:
        parsed.heartbeat = _HEARTBEAT  # longer than the sidecar's: idle connections don't respond to heartbeats
    if "blocked_connection_timeout" not in options:
        parsed.blocked_connection_timeout = _HEARTBEAT
    return parsed


class Connection:
    """A connection with one channel in confirm mode; used by one thread at a time."""

    def __init__(self, url: str, name: str = "client") -> None:
        self._url = url
        self._replies: dict[str, tuple[str, bytes]] = {}
        with translated(url):
            self._connection = address.open_connection(parameters(url, name))
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()
            self._frame_max = frame_max(getattr(self._connection, "_impl", None))
        self._listening = False

    @property
    def usable(self) -> bool:
        """Whether the connection and its channel are open."""
        try:
            self._connection.process_data_events(0)
        except (AMQPError, OSError):
            return False
        return bool(self._connection.is_open and self._channel.is_open)

    def publish(
        self, key: str, body: bytes, properties: pika.BasicProperties, exchange: str = COMMANDS_EXCHANGE
    ) -> None:
        """Return once the broker has confirmed that a queue holds the message."""
        check_header(properties, self._frame_max)
        with translated(self._url):
            self._channel.basic_publish(exchange, key, body, properties, mandatory=True)

    def request(
        self, key: str, body: bytes, properties: pika.BasicProperties, timeout: float
    ) -> ScheduleAccepted | CalendarAccepted:
        """Publish, then wait for the sidecar's reply."""
        correlation_id = properties.correlation_id = properties.correlation_id or str(uuid4())
        if not self._listening:
            with translated(self._url):
                self._channel.basic_consume(_REPLY_TO, self._on_reply, auto_ack=True)
            self._listening = True
        properties.reply_to = _REPLY_TO
        self._replies.clear()
        self.publish(key, body, properties)
        deadline = time.monotonic() + timeout
        while correlation_id not in self._replies:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise NoAnswer(f"no reply within {timeout:g} s; the command is in the queue: "
                               "is `scheduler consumer` running?")
            with translated(self._url):
                self._connection.process_data_events(min(remaining, 1.0))
        return _read_reply(*self._replies.pop(correlation_id))

    def _on_reply(
        self, _channel: object, _method: object, properties: pika.BasicProperties, body: bytes
    ) -> None:
        self._replies[properties.correlation_id or ""] = (properties.type or "", body)

    def close(self) -> None:
        """Close the connection; ignore errors."""
        with contextlib.suppress(AMQPError, OSError):
            self._connection.close()


def frame_max(connection: object) -> int:
    """Return the connection's negotiated frame size."""
    return int(getattr(getattr(connection, "params", None), "frame_max", None) or _FRAME_MAX)


def check_header(properties: pika.BasicProperties, frame_max: int) -> None:
    """Raise MessageRefused if the headers exceed a frame: the broker would close the connection."""
    try:
        size = len(Header(1, 0, properties).marshal())
    except Exception as error:  # noqa: BLE001 - pika raises various errors for a value of the wrong type
        raise MessageRefused(f"the message's properties cannot be encoded: {error!r}"[:500]) from None
    if size > frame_max:
        raise MessageRefused(f"its headers need a frame of {size:,} bytes; frame_max is {frame_max:,}")


def _read_reply(message_type: str, body: bytes) -> ScheduleAccepted | CalendarAccepted:
    if message_type == "ScheduleAccepted":
        fields = json.loads(body)
        return (ScheduleAccepted if "id" in fields else CalendarAccepted).model_validate(fields)
    if message_type == "ScheduleRejected":
        raise CommandRejected(
            Problem(error["field"], error["problem"]) for error in json.loads(body)["errors"]
        )
    raise ClientError(f"the reply has the unknown type {message_type[:80]!r}")
