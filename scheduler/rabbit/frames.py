"""AMQP 0-9-1 frames for publishing, encoded once and for many messages at a time."""

import struct
import sys
from dataclasses import dataclass
from functools import lru_cache

import pika
from pika import spec
from pika.data import encode_table
from pika.frame import Header, Method

from scheduler.domain.names import COMMANDS_EXCHANGE, EVENTS_EXCHANGE

_END = b"\xce"
_FRAME = struct.Struct(">BHI")
_CONTENT = struct.Struct(">HHQH")
_CONTENT_HEAD = struct.Struct(">HHQ")  # without the flags
_PUBLISH = struct.Struct(">IH")
_MANDATORY = b"\x01"
_BASIC = 60
_ROUTED = "due."
_FRAME_OVERHEAD = 8  # bytes: type, channel and size before the payload, the end mark after it
NO_LIMIT = sys.maxsize


class UnsendableMessage(Exception):  # noqa: N818 - a property of the message, not a failure of the program
    """The broker would close the channel or the connection over this message."""


@dataclass(frozen=True, slots=True)
class AmqpMessage:
    """A message to publish. `key`, its message_id, identifies it if it is returned."""

    exchange: str
    routing_key: str
    body: bytes
    properties: pika.BasicProperties
    mandatory: bool = True

    @property
    def key(self) -> str | None:
        message_id: str | None = self.properties.message_id
        return message_id


@dataclass(slots=True)
class DueMessage:
    """A ScheduleDue or another event: like AmqpMessage, with properties that are fast to encode."""

    body: bytes
    key: str | None
    timestamp: int
    correlation_id: str | None = None
    headers: dict[str, str] | None = None
    expiration: str | None = None  # milliseconds
    priority: int | None = None
    exchange: str = EVENTS_EXCHANGE
    routing_key: str = "due"
    kind: str = "ScheduleDue"
    user_id: str | None = None  # the sidecar's user: the broker verifies it
    mandatory: bool = True
    fallback_key: str | None = None  # the routing key to use if no queue is bound to the first


@dataclass(slots=True)
class RawMessage:
    """A forwarded message with its encoded properties."""

    exchange: str
    routing_key: bytes
    properties: bytes
    body: bytes

    mandatory = True

    @property
    def key(self) -> tuple[str, bytes, bytes]:
        """Identifies a returned message: publishers may give several messages the same message_id."""
        return self.exchange, self.routing_key, self.body


Publishable = AmqpMessage | DueMessage | RawMessage


def own_route(message: Publishable) -> str | None:
    """Return the first word of an event's route, or None for the addresses that all tenants share."""
    if isinstance(message, DueMessage) and message.routing_key.startswith(_ROUTED):
        return message.routing_key.split(".", 2)[1]
    return None


def dead_run(
    exchange: str, body: bytes, event_id: str, headers: dict[str, str | int], *, correlation_id: str | None,
    timestamp: int, priority: int | None,
) -> AmqpMessage:
    """Return the event of a dead run, for operators: it never expires."""
    properties = pika.BasicProperties(
        content_type="application/json", delivery_mode=2, type="ScheduleDue", app_id="scheduler",
        message_id=event_id, correlation_id=correlation_id, timestamp=timestamp, headers=headers,
        priority=priority,
    )
    return AmqpMessage(exchange, "due", body, properties)


def marker(exchange: str, routing_key: str, marker_id: str, header: str) -> AmqpMessage:
    """Return a message that marks a position in a queue."""
    properties = pika.BasicProperties(
        content_type="application/json", delivery_mode=2, app_id="scheduler", message_id=marker_id,
        headers={header: marker_id},
    )
    return AmqpMessage(exchange, routing_key, b"{}", properties)


def json_message(
    exchange: str, routing_key: str, kind: str, body: bytes, *, correlation_id: str | None, timestamp: int,
    message_id: str | None = None,
) -> AmqpMessage:
    """Return a message without a required receiver: a reply, or an event other than ScheduleDue."""
    properties = pika.BasicProperties(
        content_type="application/json", delivery_mode=2, type=kind, app_id="scheduler",
        correlation_id=correlation_id, timestamp=timestamp, message_id=message_id,
    )
    return AmqpMessage(exchange, routing_key, body, properties, mandatory=False)


def command_message(
    routing_key: str, kind: str, body: bytes, *, key: str, reply_to: str | None = None,
    correlation_id: str | None = None, user_id: str | None = None, headers: dict[str, str] | None = None,
) -> AmqpMessage:
    """Return a worker's command: it must reach a queue, and `key` identifies it if it is returned."""
    properties = pika.BasicProperties(
        content_type="application/json", delivery_mode=2, type=kind, app_id="scheduler", message_id=key,
        reply_to=reply_to, correlation_id=correlation_id, user_id=user_id, headers=headers,
    )
    return AmqpMessage(COMMANDS_EXCHANGE, routing_key, body, properties)


def encode(message: Publishable, channel: int, frame_max: int, max_body: int = NO_LIMIT) -> bytes:
    """Return the frames of one publish: method, header and body.

    Raises UnsendableMessage if the header exceeds a frame or the body exceeds `max_body`.
    """
    body = message.body
    if len(body) > max_body:
        raise UnsendableMessage(f"its body has {len(body):,} bytes; the broker's max_message_size is {max_body:,}")
    if isinstance(message, RawMessage):
        return _encode_raw(message, channel, frame_max)
    parts: list[bytes] = [_publish(channel, message.exchange, message.routing_key, message.mandatory)]
    if isinstance(message, DueMessage):
        header = _due_header(message, channel)
    else:
        header = Header(channel, len(body), message.properties).marshal()
    if len(header) > frame_max:
        raise _oversized_header(len(header), frame_max)
    parts.append(header)
    _add_body(parts, body, channel, frame_max)
    return b"".join(parts)


def _oversized_header(size: int, frame_max: int) -> UnsendableMessage:
    return UnsendableMessage(f"its headers need a frame of {size:,} bytes; frame_max is {frame_max:,}")


def _add_body(parts: list[bytes], body: bytes, channel: int, frame_max: int) -> None:
    room = frame_max - _FRAME_OVERHEAD
    for start in range(0, len(body), room):
        piece = body[start : start + room]
        parts += (_FRAME.pack(spec.FRAME_BODY, channel, len(piece)), piece, _END)


def _encode_raw(message: RawMessage, channel: int, frame_max: int) -> bytes:
    exchange, key, properties, body = message.exchange, message.routing_key, message.properties, message.body
    name = _short(exchange)
    if not fits(properties, frame_max):
        raise _oversized_header(_CONTENT_HEAD.size + len(properties) + _FRAME_OVERHEAD, frame_max)
    parts: list[bytes] = [
        _FRAME.pack(spec.FRAME_METHOD, channel, _PUBLISH.size + len(name) + 2 + len(key)),
        _PUBLISH.pack(spec.Basic.Publish.INDEX, 0), name, bytes((len(key),)), key, _MANDATORY + _END,
        _FRAME.pack(spec.FRAME_HEADER, channel, _CONTENT_HEAD.size + len(properties)),
        _CONTENT_HEAD.pack(_BASIC, 0, len(body)), properties, _END,
    ]
    _add_body(parts, body, channel, frame_max)
    return b"".join(parts)


def fits(properties: bytes, frame_max: int) -> bool:
    """Return whether properties fit in one frame, as AMQP requires."""
    return _CONTENT_HEAD.size + len(properties) + _FRAME_OVERHEAD <= frame_max


@lru_cache(maxsize=1024)  # a few, and one per route
def _publish(channel: int, exchange: str, routing_key: str, mandatory: bool) -> bytes:
    method = spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    marshalled: bytes = Method(channel, method).marshal()
    return marshalled


def _due_header(message: DueMessage, channel: int) -> bytes:
    """Encode the properties in the order of the specification's flags."""
    flags, before, correlation, expiration, key = _DUE_FLAGS, _DUE_START, b"", b"", b""
    if message.headers:
        flags |= spec.BasicProperties.FLAG_HEADERS
        pieces: list[bytes] = []
        encode_table(pieces, message.headers)
        before = _JSON + b"".join(pieces) + _PERSISTENT
    if message.priority is not None:
        flags |= spec.BasicProperties.FLAG_PRIORITY
        before += bytes((message.priority,))
    if message.correlation_id is not None:
        flags |= spec.BasicProperties.FLAG_CORRELATION_ID
        correlation = _short(message.correlation_id)
    if message.expiration is not None:
        flags |= spec.BasicProperties.FLAG_EXPIRATION
        expiration = _short(message.expiration)
    if message.key is not None:
        flags |= spec.BasicProperties.FLAG_MESSAGE_ID
        key = _short(message.key)
    if message.user_id is not None:
        flags |= spec.BasicProperties.FLAG_USER_ID
    content = b"".join((
        _CONTENT.pack(_BASIC, 0, len(message.body), flags), before, correlation, expiration, key,
        _TIMESTAMP.pack(message.timestamp), _due_end(message.kind, message.user_id),
    ))
    return _FRAME.pack(spec.FRAME_HEADER, channel, len(content)) + content + _END


@lru_cache(maxsize=16)  # there are few event types
def _due_end(kind: str, user_id: str | None) -> bytes:
    return _short(kind) + (b"" if user_id is None else _short(user_id)) + _short("scheduler")


def _short(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded


_TIMESTAMP = struct.Struct(">Q")
_JSON, _PERSISTENT = _short("application/json"), b"\x02"
_DUE_START = _JSON + _PERSISTENT
_DUE_FLAGS = (
    spec.BasicProperties.FLAG_CONTENT_TYPE
    | spec.BasicProperties.FLAG_DELIVERY_MODE
    | spec.BasicProperties.FLAG_TIMESTAMP
    | spec.BasicProperties.FLAG_TYPE
    | spec.BasicProperties.FLAG_APP_ID
)
