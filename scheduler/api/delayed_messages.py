"""List and cancel pending delayed messages, for tokens of all tenants: the messages belong to no tenant."""

from uuid import UUID

from scheduler.api import cursors
from scheduler.api.actions import Actions
from scheduler.api.database import Database
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import NotFound
from scheduler.postgres.connection import Connection, transaction
from scheduler.postgres.delayed.operator_queries import (
    DelayedDetails,
    DelayedFilter,
    cancel_delayed,
    find_delayed,
    list_delayed,
)
from scheduler.views.base import Page
from scheduler.views.delayed_messages import DelayedView, WholeDelayedView, delayed_view, whole_delayed_view

_MAX_NUMBER = 18  # digits that always fit into a bigint


class DelayedMessageService:
    """Reads and cancels delayed messages."""

    def __init__(self, database: Database, actions: Actions) -> None:
        self._database = database
        self._actions = actions

    async def list(
        self, who: Identity, filters: DelayedFilter, limit: int, after: str | None = None
    ) -> Page[DelayedView]:
        """Return a page of pending messages, the next due first."""
        check(who, Permission.READ_ALL)
        position = cursors.read("delayed", after)
        start = None if position is None else (position[0], int(position[1][1:]))
        rows = await self._database.search(lambda at: list_delayed(at, filters, limit + 1, start))
        last = rows[limit - 1] if len(rows) > limit else None
        next_cursor = None if last is None else cursors.write("delayed", last.wake_at, f"1{last.number:019}")
        return Page([delayed_view(row) for row in rows[:limit]], next_cursor)

    async def get(self, who: Identity, name: str) -> WholeDelayedView:
        """Return a pending message."""
        check(who, Permission.READ_ALL)
        return whole_delayed_view(await self._find(name))

    async def cancel(self, who: Identity, name: str) -> WholeDelayedView:
        """Cancel a pending message and return it."""
        check(who, Permission.WRITE_ALL)
        message = await self._find(name)

        def cancel(connection: Connection) -> bool:
            with transaction(connection) as cursor:
                return cancel_delayed(cursor, _parse_id(name))

        if not await self._database.write(cancel):
            raise _not_found(name)
        view = whole_delayed_view(message)
        await self._actions.note(who, "cancel", "delayed", view.id, {"routing_key": view.routing_key})
        return view

    async def _find(self, name: str) -> DelayedDetails:
        message_id = _parse_id(name)
        message = await self._database.read(lambda at: find_delayed(at, message_id))
        if message is None:
            raise _not_found(name)
        return message


def _parse_id(name: str) -> UUID | int:
    try:
        return int(name) if name.isascii() and name.isdigit() and len(name) <= _MAX_NUMBER else UUID(name)
    except ValueError:
        raise _not_found(name) from None


def _not_found(name: str) -> NotFound:
    return NotFound(f"No pending delayed message has the id {name[:100]}; it may already have been delivered.")
