"""Exactly-once effects: an event's id is stored in the same transaction as what it brings about."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from scheduler.client.database import execute


def once(database: Any, event_id: UUID | str, scope: str = "") -> bool:
    """Return True the first time; False when this event has taken effect before, and shall be skipped.

    Commit the effect and this note together. `scope` tells two effects of one event apart.
    """
    return bool(execute(database, "insert_handled", (str(event_id), scope)))


def forget(database: Any, older_than: timedelta) -> None:
    """Remove notes of events that cannot come again; keep them longer than any queue may hold an event."""
    execute(database, "delete_old_handled", (older_than.total_seconds(),))
