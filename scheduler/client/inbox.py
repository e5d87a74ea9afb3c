"""Exactly-once effects: store an event's id in the same transaction as its effect."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from scheduler.client.database import execute


def once(database: Any, event_id: UUID | str, scope: str = "") -> bool:
    """Return True for a new event, False for a duplicate, which the host must skip.

    Commit the effect in the same transaction. `scope` distinguishes two effects of one event.
    """
    return bool(execute(database, "insert_handled", (str(event_id), scope)))


def forget(database: Any, older_than: timedelta) -> None:
    """Delete old event ids; keep them longer than any queue can store an event."""
    execute(database, "delete_old_handled", (older_than.total_seconds(),))
