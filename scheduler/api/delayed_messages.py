"""Delayed messages that wait, for tokens of all tenants: they belong to none."""

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

_LONGEST_NUMBER = 18  # digits, as a bigint holds in any case


class DelayedMessageService:
    """The service behind the delayed messages."""

    def __init__(self, database: Database, actions: Actions) -> None:
        self._database = database
        self._actions = actions

    async def list(
        self, who: Identity, wanted: DelayedFilter, limit: int, after: str | None = None
    ) -> Page[DelayedView]:
        """Return a page of those that wait, those that come out next first."""
        check(who, Permission.READ_ALL)
        place = cursors.read("delayed", after)
        begin = None if place is None else (place[0], int(place[1][1:]))
        rows = await self._database.search(lambda at: list_delayed(at, wanted, limit + 1, begin))
        last = rows[limit - 1] if len(rows) > limit else None
        following = None if last is None else cursors.write("delayed", last.wake_at, f"1{last.number:019}")
        return Page([delayed_view(each) for each in rows[:limit]], following)

    async def get(self, who: Identity, name: str) -> WholeDelayedView:
        """Return one that waits."""
        check(who, Permission.READ_ALL)
        return whole_delayed_view(await self._found(name))

    async def cancel(self, who: Identity, name: str) -> WholeDelayedView:
        """Take one back, and return it as it was."""
        check(who, Permission.WRITE_ALL)
        found = await self._found(name)

        def cancel(connection: Connection) -> bool:
            with transaction(connection) as cursor:
                return cancel_delayed(cursor, _named(name))

        if not await self._database.write(cancel):
            raise _not_found(name)
        view = whole_delayed_view(found)
        await self._actions.note(who, "cancel", "delayed", view.id, {"routing_key": view.routing_key})
        return view

    async def _found(self, name: str) -> DelayedDetails:
        named = _named(name)
        found = await self._database.read(lambda at: find_delayed(at, named))
        if found is None:
            raise _not_found(name)
        return found


def _named(name: str) -> UUID | int:
    try:
        return int(name) if name.isascii() and name.isdigit() and len(name) <= _LONGEST_NUMBER else UUID(name)
    except ValueError:
        raise _not_found(name) from None


def _not_found(name: str) -> NotFound:
    return NotFound(f"No delayed message {name[:100]} waits; it may be out already.")
