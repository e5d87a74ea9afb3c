"""List, find and cancel pending delayed messages for operators."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from scheduler.postgres.connection import Connection, Cursor, translated
from scheduler.postgres.delayed import store
from scheduler.postgres.row_text import names
from scheduler.resources import query

MAX_BODY = 64 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class DelayedSummary:
    """A pending message without its body."""

    number: int
    message_id: str | None
    exchange: str
    routing_key: bytes
    due_at: datetime
    stored_at: datetime
    wake_at: datetime
    size: int
    retries: int
    problem: str | None

    @property
    def id(self) -> str:
        """The message_id if it is a UUID, otherwise the number."""
        return self.message_id or str(self.number)


@dataclass(frozen=True, slots=True)
class DelayedDetails:
    """A pending message with its encoded properties and the first bytes of its body."""

    listed: DelayedSummary
    properties: bytes
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedFilter:
    """Filter for pending messages."""

    routing_key: str | None = None
    since: datetime | None = None  # due then or later


_WRITTEN = {"number": "id", "message_id": "message_id::text", "size": "octet_length(body)"}
_LISTED = ", ".join(f"{_WRITTEN.get(name, name)} AS {name}" for name in names(DelayedSummary))
_LIST = query("delayed/list", listed=_LISTED)
_SHOW = query("delayed/report", listed=_LISTED)
_COUNT = len(names(DelayedSummary))


def list_delayed(
    connection: Connection, wanted: DelayedFilter, limit: int, after: tuple[datetime, int] | None = None
) -> list[DelayedSummary]:
    """Return matching messages after the position `after` (wake_at, number), next due first."""
    after_at, after_id = after or (None, None)
    key = None if wanted.routing_key is None else wanted.routing_key.encode()
    values = {
        "routing_key": key, "since": wanted.since, "after_at": after_at, "after_id": after_id, "limit": limit,
    }
    with translated(), connection.cursor() as cursor:
        cursor.execute(_LIST, values)
        return [_listed(row) for row in cursor.fetchall()]


def find_delayed(connection: Connection, name: UUID | int) -> DelayedDetails | None:
    """Return a pending message by UUID or number."""
    with translated(), connection.cursor() as cursor:
        cursor.execute(_SHOW, _named(name) | {"most": MAX_BODY})
        row = cursor.fetchone()
    return None if row is None else DelayedDetails(_listed(row[:_COUNT]), bytes(row[_COUNT]),
                                                   bytes(row[_COUNT + 1]))


def cancel_delayed(cursor: Cursor, name: UUID | int) -> bool:
    """Cancel a message and return whether it was pending; a UUID gets a tombstone, as with a cancel command."""
    if isinstance(name, UUID):
        return bool(store.cancel(cursor, [str(name)], [str(name)]))
    cursor.execute(query("delayed/cancel_one"), {"id": name})
    return cursor.fetchone() is not None


def _named(name: UUID | int) -> dict[str, Any]:
    return {"message_id": str(name), "id": None} if isinstance(name, UUID) else {"message_id": None, "id": name}


def _listed(row: tuple[Any, ...]) -> DelayedSummary:
    number, message_id, exchange, routing_key, *rest = row
    return DelayedSummary(number, message_id, exchange, bytes(routing_key), *rest)
