"""Delayed messages become rows: a batch is one transaction."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from scheduler.commands.judging import Verdict
from scheduler.commands.reading import CRASHED
from scheduler.commands.transactions import attempted
from scheduler.domain.delayed.delay import DELAY, DELAY_HEADERS, Delay, HeaderValue, due_at, negated, read_delay
from scheduler.domain.delayed.message import LOOK_SECONDS, Arrival, Arrived
from scheduler.domain.errors import Problem, Reason, Rejected
from scheduler.ops.logs import get_logger
from scheduler.postgres.connection import Connection, database_time
from scheduler.postgres.delayed import store
from scheduler.postgres.delayed.store import Cursor
from scheduler.postgres.runs.store import wake_producers
from scheduler.rabbit import content
from scheduler.rabbit.frames import fits
from scheduler.rabbit.reading import Delivery, as_bytes
from scheduler.rabbit.topology import DELIVERY_LIMIT

log = get_logger(__name__)

_NAMES = frozenset(name.encode() for name in DELAY_HEADERS)
_DELAY = DELAY.encode()
_REMOVED = _NAMES - {_DELAY}
_COUNT = b"x-delivery-count"  # the queue's own mark on what it delivers again
_UUID = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_COMMON = 512  # bytes; longer properties are not likely to come again
_SOON = timedelta(seconds=LOOK_SECONDS + 0.1)


class _Read(NamedTuple):
    delay: Delay
    message_id: str | None
    properties: bytes


def read_delayed(delivery: Delivery, *, exchange: str, frame_max: int) -> Arrived | Rejected:
    """Return the message as it will come out of `exchange`, or why it never can; nothing is raised."""
    if delivery.deliveries_before >= DELIVERY_LIMIT - 1:
        return Rejected([Problem("body", CRASHED)], Reason.REDELIVERED)
    raw = delivery.raw
    try:
        again = delivery.redelivered
        read = _common(raw) if len(raw) <= _COMMON and not again else _read(raw, redelivered=again)
    except Rejected as error:
        return error.kept()
    except content.Unreadable as error:
        return Rejected([Problem("headers", f"cannot be read ({error})")])
    except Exception:
        # A case that nobody thought of must not end the consumer again and again: the message is kept aside.
        log.exception("delayed message cannot be read", do="report it, with the message in scheduler_dead")
        return Rejected([Problem("headers", "cannot be read: an error of the scheduler's own, see its log")])
    if not fits(read.properties, frame_max):
        return Rejected([Problem("headers", f"have {len(raw):,} bytes: their frame has no room for x-delay")])
    return Arrived(
        exchange, as_bytes(delivery.routing_key), read.delay, read.message_id, read.properties, delivery.body
    )


def _read(raw: bytes, *, redelivered: bool = False) -> _Read:
    found = content.locate(raw)
    headers: dict[str, HeaderValue] = {}
    pieces = []
    for entry in found.entries(raw):
        name = entry.name
        if name == _DELAY:
            said = content.value(raw, entry)
            headers.setdefault(DELAY, said)
            opposite = _negated(said)
            if opposite is not None:
                pieces.append(content.header(name, content.number(opposite)))
                continue
        elif name in _REMOVED:
            headers.setdefault(name.decode(), content.value(raw, entry))
            continue
        elif redelivered and name == _COUNT:
            continue
        pieces.append(raw[entry.start : entry.end])
    delay = read_delay(headers)
    named = found.message_id
    message_id = named.decode().lower() if named is not None and _UUID.fullmatch(named) else None
    return _Read(delay, message_id, found.spliced(raw, pieces) if found.start else raw)


def _negated(said: HeaderValue) -> int | None:
    try:
        opposite = negated(said)
    except ValueError:
        return None  # it is about to be rejected for that, or for being too far
    return opposite if opposite is None or opposite >= -(2**63) else None


# Many a publisher sends the same with each message.
_common = lru_cache(maxsize=1024)(_read)


def execute_delayed(connection: Connection, batch: Sequence[Arrived], _: timedelta) -> list[Verdict]:
    """Store the messages in one transaction and return what became of each, in order."""
    return attempted(connection, batch, _execute)


def _execute(cursor: Cursor, batch: Sequence[Arrived]) -> list[Verdict]:
    now = database_time(cursor)
    taken = _taken(cursor, batch)
    verdicts: list[Verdict] = []
    added: list[tuple[Arrived, datetime]] = []
    for message in batch:
        named = message.message_id
        if named is not None and named in taken:
            verdicts.append(Arrival.CANCELLED if taken[named] else Arrival.DUPLICATE)
            continue
        try:
            due = due_at(message.delay, now)
        except Rejected as error:
            verdicts.append(error.kept())
            continue
        if named is not None:
            taken[named] = False
        added.append((message, due))
        verdicts.append(Arrival.WAITING)
    if added:
        store.add(cursor, added)
        soonest = min(due for _, due in added)
        if soonest <= now + _SOON:
            wake_producers(cursor, store.KIND, soonest)
    return verdicts


def _taken(cursor: Cursor, batch: Sequence[Arrived]) -> dict[str, bool]:
    """Return the UUIDs under which nothing can be stored, and whether that is because of a cancel."""
    ids = {message.message_id for message in batch if message.message_id is not None}
    if not ids:
        return {}
    known = store.known(cursor, ids)
    over = [message_id for message_id, each in known.items() if each.over]
    if over:
        store.forget_cancels(cursor, over)
    return {message_id: each.cancelled for message_id, each in known.items() if not each.over}
