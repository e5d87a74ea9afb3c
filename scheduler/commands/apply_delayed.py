"""Parse delayed messages and store a batch of them in one transaction."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from scheduler.commands.batch_transaction import run_in_transaction
from scheduler.commands.decide_commands import MessageOutcome
from scheduler.domain.delayed.delay import (
    DELAY,
    DELAY_HEADERS,
    Delay,
    HeaderValue,
    due_at,
    elapsed_delay,
    parse_delay,
)
from scheduler.domain.delayed.message import IDLE_POLL_SECONDS, ReceivedMessage, ReceiveOutcome
from scheduler.domain.errors import INTERNAL_ERROR, Problem, Rejected
from scheduler.domain.message_base import UUID_PATTERN
from scheduler.ops.logs import get_logger
from scheduler.postgres.connection import Connection, Cursor, database_time
from scheduler.postgres.delayed import store
from scheduler.postgres.locks import RowKeys, find_locked
from scheduler.postgres.wakeup import wake_producers
from scheduler.rabbit import content_header
from scheduler.rabbit.delivery_parser import Delivery, as_bytes
from scheduler.rabbit.frames import fits

log = get_logger(__name__)

_NAMES = frozenset(name.encode() for name in DELAY_HEADERS)
_DELAY = DELAY.encode()
_REMOVED = _NAMES - {_DELAY}
_UUID = re.compile(rf"{UUID_PATTERN}|[0-9a-f]{{32}}".encode(), re.IGNORECASE)
_UUID_LENGTH = 36
_MAX_CACHED_BYTES = 512  # longer headers are unlikely to repeat
_UNIQUE_PROPERTIES = 1 << 10 | 1 << 7  # property flags of correlation_id and message_id
_WAKE_HORIZON = timedelta(seconds=IDLE_POLL_SECONDS + 0.1)


class _DelayHeaders(NamedTuple):
    delay: Delay
    table: bytes  # as it will be emitted


class _ParsedDelivery(NamedTuple):
    delay: Delay
    message_id: str | None
    properties: bytes


def parse_delayed_delivery(delivery: Delivery, *, exchange: str, frame_max: int) -> ReceivedMessage | Rejected:
    """Return the message as `exchange` will emit it, or Rejected if it never can. Never raises."""
    raw = delivery.raw
    try:
        redelivered = delivery.redelivered
        unique = int.from_bytes(raw[:2], "big") & _UNIQUE_PROPERTIES
        cacheable = len(raw) <= _MAX_CACHED_BYTES and not redelivered and not unique
        parsed = _parse_cached(raw) if cacheable else _parse(raw, redelivered=redelivered)
    except Rejected as error:
        return error.without_traceback()
    except content_header.UnreadableContent as error:
        return Rejected([Problem("headers", f"cannot be read ({error})")])
    except Exception:
        # A bug must not crash the consumer on every redelivery: dead-letter the message.
        log.exception("delayed message cannot be read", do="report it, with the message in scheduler_dead")
        return Rejected([Problem("headers", f"cannot be read: {INTERNAL_ERROR}")])
    if not fits(parsed.properties, frame_max):
        return Rejected([Problem("headers", f"have {len(raw):,} bytes: their frame has no room for x-delay")])
    return ReceivedMessage(
        exchange, as_bytes(delivery.routing_key), parsed.delay, parsed.message_id, parsed.properties, delivery.body
    )


def _parse(raw: bytes, *, redelivered: bool = False) -> _ParsedDelivery:
    start, end, property_value = content_header.locate(raw)
    message_id = _canonical(property_value) if property_value and _UUID.fullmatch(property_value) else None
    if not start:
        return _ParsedDelivery(Delay(), message_id, raw)
    table = raw[start:end]
    if redelivered or len(table) > _MAX_CACHED_BYTES:
        headers = _parse_headers(table, redelivered=redelivered)
    else:
        headers = _parse_headers_cached(table)
    return _ParsedDelivery(headers.delay, message_id, b"".join((raw[:start], headers.table, raw[end:])))


def _canonical(uuid: bytes) -> str:
    """Return a UUID, with or without dashes, in Postgres's notation."""
    text = uuid.decode().lower()
    return text if len(text) == _UUID_LENGTH else str(UUID(text))


def _parse_headers(table: bytes, *, redelivered: bool = False) -> _DelayHeaders:
    values: dict[str, HeaderValue] = {}
    pieces = []
    for entry in content_header.headers(table):
        name = entry.name
        if name == _DELAY:
            delay = content_header.value(table, entry)
            values.setdefault(DELAY, delay)
            negated = _negate(delay)
            if negated is not None:
                pieces.append(content_header.header(name, content_header.number(negated)))
                continue
        elif name in _REMOVED:
            values.setdefault(name.decode(), content_header.value(table, entry))
            continue
        elif redelivered and name in content_header.COUNTS:
            continue
        pieces.append(table[entry.start : entry.end])
    return _DelayHeaders(parse_delay(values), content_header.table(pieces))


def _negate(delay: HeaderValue) -> int | None:
    try:
        negated = elapsed_delay(delay)
    except ValueError:
        return None  # parse_delay rejects the message
    return negated if negated is None or negated >= -(2**63) else None


# Many publishers send the same properties, or at least the same headers, with every message.
_parse_cached = lru_cache(maxsize=1024)(_parse)
_parse_headers_cached = lru_cache(maxsize=1024)(_parse_headers)


def store_delayed(
    connection: Connection, batch: Sequence[ReceivedMessage], _: timedelta, *, wait_for_locks: bool = True
) -> list[MessageOutcome]:
    """Store the messages in one transaction and return their outcomes in order.

    Almost every UUID is new, so the first attempt inserts without a lookup. Only if the unique index reports a
    duplicate, the second attempt looks the UUIDs up.
    """
    look_up = False

    def execute(cursor: Cursor, messages: Sequence[ReceivedMessage]) -> list[MessageOutcome]:
        nonlocal look_up
        used_ids = _find_used_ids(cursor, messages) if look_up else {}
        look_up = True
        return _execute(cursor, messages, used_ids)

    return run_in_transaction(connection, batch, execute, _find_locked, wait_for_locks=wait_for_locks)


def _find_locked(cursor: Cursor, batch: Sequence[ReceivedMessage]) -> set[str]:
    """Return the UUIDs whose message or cancel another session has locked."""
    ids = {message.message_id for message in batch if message.message_id is not None}
    return find_locked(cursor, RowKeys("delayed_messages", ids, key="message_id"))


def _execute(cursor: Cursor, batch: Sequence[ReceivedMessage], used_ids: dict[str, bool]) -> list[MessageOutcome]:
    now = database_time(cursor)
    dues: dict[int, datetime] = {}  # messages with the same headers share one Delay object
    outcomes: list[MessageOutcome] = []
    added: list[tuple[ReceivedMessage, datetime]] = []
    for message in batch:
        message_id = message.message_id
        if message_id is not None and message_id in used_ids:
            outcomes.append(ReceiveOutcome.CANCELLED if used_ids[message_id] else ReceiveOutcome.DUPLICATE)
            continue
        due = dues.get(id(message.delay))
        if due is None:
            try:
                due = dues[id(message.delay)] = due_at(message.delay, now)
            except Rejected as error:
                outcomes.append(error.without_traceback())
                continue
        if message_id is not None:
            used_ids[message_id] = False
        added.append((message, due))
        outcomes.append(ReceiveOutcome.WAITING)
    if added:
        store.add(cursor, added)
        next_due_at = min(dues.values())
        if next_due_at <= now + _WAKE_HORIZON:
            wake_producers(cursor, store.KIND, next_due_at)
    return outcomes


def _find_used_ids(cursor: Cursor, batch: Sequence[ReceivedMessage]) -> dict[str, bool]:
    """Return the stored UUIDs; the value is True for a cancel."""
    ids = {message.message_id for message in batch if message.message_id is not None}
    if not ids:
        return {}
    stored = store.find_stored(cursor, ids)
    expired = [message_id for message_id, row in stored.items() if row.over]
    if expired:
        store.forget_cancels(cursor, expired)
    return {message_id: row.cancelled for message_id, row in stored.items() if not row.over}
