"""Delayed messages become rows: a batch is one transaction."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from scheduler.commands.batch_transaction import run_in_transaction
from scheduler.commands.decide_commands import MessageOutcome
from scheduler.commands.parse_deliveries import CRASHED
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
from scheduler.domain.errors import Problem, Reason, Rejected
from scheduler.domain.messages.base import UUID_PATTERN
from scheduler.ops.logs import get_logger
from scheduler.postgres.connection import Connection, Cursor, database_time
from scheduler.postgres.delayed import store
from scheduler.postgres.locks import find_locked
from scheduler.postgres.wakeup import wake_producers
from scheduler.rabbit import content_header
from scheduler.rabbit.delivery_parser import Delivery, as_bytes
from scheduler.rabbit.frames import fits
from scheduler.rabbit.topology import DELIVERY_LIMIT

log = get_logger(__name__)

_NAMES = frozenset(name.encode() for name in DELAY_HEADERS)
_DELAY = DELAY.encode()
_REMOVED = _NAMES - {_DELAY}
_UUID = re.compile(rf"{UUID_PATTERN}|[0-9a-f]{{32}}".encode(), re.IGNORECASE)
_UUID_LENGTH = 36
_COMMON = 512  # bytes; what is longer is not likely to come again
_OWN = 1 << 10 | 1 << 7  # of the flags: a correlation_id or a message_id, which each message has for itself
_SOON = timedelta(seconds=IDLE_POLL_SECONDS + 0.1)


class _DelayHeaders(NamedTuple):
    delay: Delay
    written: bytes  # the table as it comes out


class _ParsedDelivery(NamedTuple):
    delay: Delay
    message_id: str | None
    properties: bytes


def read_delayed(delivery: Delivery, *, exchange: str, frame_max: int) -> ReceivedMessage | Rejected:
    """Return the message as it will come out of `exchange`, or why it never can; nothing is raised."""
    if delivery.deliveries_before >= DELIVERY_LIMIT - 1:
        return Rejected([Problem("body", CRASHED)], Reason.REDELIVERED)
    raw = delivery.raw
    try:
        again = delivery.redelivered
        alike = len(raw) <= _COMMON and not again and not int.from_bytes(raw[:2], "big") & _OWN
        read = _common(raw) if alike else _read(raw, redelivered=again)
    except Rejected as error:
        return error.without_traceback()
    except content_header.UnreadableContent as error:
        return Rejected([Problem("headers", f"cannot be read ({error})")])
    except Exception:
        # A case that nobody thought of must not end the consumer again and again: the message is kept aside.
        log.exception("delayed message cannot be read", do="report it, with the message in scheduler_dead")
        return Rejected([Problem("headers", "cannot be read: an error of the scheduler's own, see its log")])
    if not fits(read.properties, frame_max):
        return Rejected([Problem("headers", f"have {len(raw):,} bytes: their frame has no room for x-delay")])
    return ReceivedMessage(
        exchange, as_bytes(delivery.routing_key), read.delay, read.message_id, read.properties, delivery.body
    )


def _read(raw: bytes, *, redelivered: bool = False) -> _ParsedDelivery:
    start, end, named = content_header.locate(raw)
    message_id = _canonical(named) if named is not None and _UUID.fullmatch(named) else None
    if not start:
        return _ParsedDelivery(Delay(), message_id, raw)
    table = raw[start:end]
    if redelivered or len(table) > _COMMON:
        headers = _read_headers(table, redelivered=redelivered)
    else:
        headers = _common_headers(table)
    return _ParsedDelivery(headers.delay, message_id, b"".join((raw[:start], headers.written, raw[end:])))


def _canonical(named: bytes) -> str:
    """Return a UUID, with or without dashes, as Postgres writes it."""
    text = named.decode().lower()
    return text if len(text) == _UUID_LENGTH else str(UUID(text))


def _read_headers(table: bytes, *, redelivered: bool = False) -> _DelayHeaders:
    found: dict[str, HeaderValue] = {}
    pieces = []
    for entry in content_header.headers(table):
        name = entry.name
        if name == _DELAY:
            said = content_header.value(table, entry)
            found.setdefault(DELAY, said)
            opposite = _negated(said)
            if opposite is not None:
                pieces.append(content_header.header(name, content_header.number(opposite)))
                continue
        elif name in _REMOVED:
            found.setdefault(name.decode(), content_header.value(table, entry))
            continue
        elif redelivered and name in content_header.COUNTS:
            continue
        pieces.append(table[entry.start : entry.end])
    return _DelayHeaders(parse_delay(found), content_header.table(pieces))


def _negated(said: HeaderValue) -> int | None:
    try:
        opposite = elapsed_delay(said)
    except ValueError:
        return None  # it is about to be rejected for that, or for being too far
    return opposite if opposite is None or opposite >= -(2**63) else None


# Many a publisher sends the same properties with each message, or at least the same headers.
_common = lru_cache(maxsize=1024)(_read)
_common_headers = lru_cache(maxsize=1024)(_read_headers)


def execute_delayed(
    connection: Connection, batch: Sequence[ReceivedMessage], _: timedelta, *, wait_for_locks: bool = True
) -> list[MessageOutcome]:
    """Store the messages in one transaction and return what became of each, in order.

    Almost every UUID is new, and the unique index says so for nothing. Only where it says otherwise they are
    looked up, and stored once more.
    """
    looked_up = False

    def execute(cursor: Cursor, messages: Sequence[ReceivedMessage]) -> list[MessageOutcome]:
        nonlocal looked_up
        taken = _arrival(cursor, messages) if looked_up else {}
        looked_up = True
        return _execute(cursor, messages, taken)

    return run_in_transaction(connection, batch, execute, _find_locked, wait_for_locks=wait_for_locks)


def _find_locked(cursor: Cursor, batch: Sequence[ReceivedMessage]) -> set[str]:
    """Return the UUIDs whose message or cancel another session has locked."""
    ids = {message.message_id for message in batch if message.message_id is not None}
    return find_locked(cursor, "delayed_messages", ids, key="message_id")


def _execute(cursor: Cursor, batch: Sequence[ReceivedMessage], taken: dict[str, bool]) -> list[MessageOutcome]:
    now = database_time(cursor)
    dues: dict[int, datetime] = {}  # those with the same headers have the very same delay
    verdicts: list[MessageOutcome] = []
    added: list[tuple[ReceivedMessage, datetime]] = []
    for message in batch:
        named = message.message_id
        if named is not None and named in taken:
            verdicts.append(ReceiveOutcome.CANCELLED if taken[named] else ReceiveOutcome.DUPLICATE)
            continue
        due = dues.get(id(message.delay))
        if due is None:
            try:
                due = dues[id(message.delay)] = due_at(message.delay, now)
            except Rejected as error:
                verdicts.append(error.without_traceback())
                continue
        if named is not None:
            taken[named] = False
        added.append((message, due))
        verdicts.append(ReceiveOutcome.WAITING)
    if added:
        store.add(cursor, added)
        soonest = min(dues.values())
        if soonest <= now + _SOON:
            wake_producers(cursor, store.KIND, soonest)
    return verdicts


def _arrival(cursor: Cursor, batch: Sequence[ReceivedMessage]) -> dict[str, bool]:
    """Return the UUIDs under which nothing can be stored, and whether that is because of a cancel."""
    ids = {message.message_id for message in batch if message.message_id is not None}
    if not ids:
        return {}
    known = store.find_stored(cursor, ids)
    over = [message_id for message_id, each in known.items() if each.over]
    if over:
        store.forget_cancels(cursor, over)
    return {message_id: each.cancelled for message_id, each in known.items() if not each.over}
