"""Store delayed messages and their cancels.

Two processes may store a message and its cancel at the same time. The unique index of message_id orders them: the
second one waits until the first has committed, and then sees its row.
"""

import io
import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from psycopg2 import errors

from scheduler.domain.delayed.message import TOMBSTONE_LIFETIME, ReceivedMessage
from scheduler.postgres.claims import array
from scheduler.postgres.connection import Contended, Cursor
from scheduler.resources import query

KIND = "delayed"
COLUMNS = ("message_id", "exchange", "routing_key", "properties", "body", "due_at", "wake_at")
_COPY = query("delayed/copy", columns=", ".join(COLUMNS))

# COPY's binary format: bodies need no hex encoding and no escaping.
_BEGIN, _END = b"PGCOPY\n\xff\r\n\x00" + bytes(8), struct.pack(">h", -1)
_COUNT, _SIZE, _INSTANT = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">iq")
_NO_ID = _COUNT.pack(len(COLUMNS)) + _SIZE.pack(-1)
_ID = _COUNT.pack(len(COLUMNS)) + _SIZE.pack(16)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INSTANT_SIZE = 8


class StoredMessageState(NamedTuple):
    """State of a stored UUID: pending, cancelled, or cancelled with an expired tombstone (`over`)."""

    cancelled: bool
    over: bool


def find_stored(cursor: Cursor, ids: Iterable[str]) -> dict[str, StoredMessageState]:
    """Return the states of those UUIDs that are stored."""
    cursor.execute(query("delayed/find_stored"), {"ids": array(ids)})
    return {message_id: StoredMessageState(*rest) for message_id, *rest in cursor.fetchall()}


def forget_cancels(cursor: Cursor, ids: Iterable[str]) -> None:
    """Delete expired tombstones, so that their messages can be stored."""
    cursor.execute(query("delayed/delete_expired_tombstones"), {"ids": array(ids)})


def add(cursor: Cursor, messages: Sequence[tuple[ReceivedMessage, datetime]]) -> None:
    """Insert messages with their due times, in this order. Raises Contended if a UUID already exists."""
    pieces = [_BEGIN]
    for message, due_at in messages:
        message_id, properties, body = message.message_id, message.properties, message.body
        pieces += (
            _NO_ID if message_id is None else _ID + bytes.fromhex(message_id.replace("-", "")),
            _columns(message.exchange, message.routing_key), _SIZE.pack(len(properties)), properties,
            _SIZE.pack(len(body)), body, _instants(due_at),
        )
    pieces.append(_END)
    try:
        cursor.copy_expert(_COPY, io.BytesIO(b"".join(pieces)), size=1 << 20)
    except errors.UniqueViolation as error:
        raise Contended("Postgres: one of these messages is already stored or cancelled") from error


# Many messages share exchange and routing key, or the due time.
@lru_cache(maxsize=1024)
def _columns(exchange: str, routing_key: bytes) -> bytes:
    name = exchange.encode()
    return b"".join((_SIZE.pack(len(name)), name, _SIZE.pack(len(routing_key)), routing_key))


@lru_cache(maxsize=1024)
def _instants(due_at: datetime) -> bytes:
    return 2 * _INSTANT.pack(_INSTANT_SIZE, (due_at - _EPOCH) // _MICROSECOND)


def cancel(cursor: Cursor, ids: Iterable[str], held: Iterable[str]) -> set[str]:
    """Cancel pending messages by UUID and return the cancelled UUIDs; insert tombstones for `held`."""
    cursor.execute(query("delayed/cancel_many"), {"ids": array(ids)})
    cancelled = {message_id for message_id, in cursor.fetchall()}
    if tombstones := list(held):
        cursor.execute(query("delayed/insert_tombstones"), {"ids": array(tombstones), "holds": TOMBSTONE_LIFETIME})
    return cancelled
