"""Dead letters, for admins of all tenants: the one part of the API that needs the broker."""

import asyncio
import json
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from scheduler.api import cursors
from scheduler.api.actions import Actions
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import Conflict, NotFound, ServiceUnavailable
from scheduler.commands.replayed_letters import is_applied
from scheduler.domain.errors import Unavailable
from scheduler.ops.logs import without_secrets
from scheduler.rabbit.dead_letter import DeadLetter
from scheduler.rabbit.dead_letter_queue import DeadLetterQueue, NotReplayable
from scheduler.settings import Settings
from scheduler.views.base import Page
from scheduler.views.dead_letters import DeadView, dead_view

T = TypeVar("T")
_RETRY_SECONDS = 5


class DeadLetterService:
    """The service behind the dead letters."""

    def __init__(self, actions: Actions, settings: Settings) -> None:
        self._actions = actions
        self._settings = settings
        self._letters = DeadLetterQueue(settings.amqp_urls, settings.delay_exchanges)

    async def list(self, who: Identity, limit: int, after: str | None = None) -> Page[DeadView]:
        """Return what lies there, oldest first."""
        check(who, Permission.DEAD_LETTERS)
        place = cursors.read_texts("dead", after)
        found = await self._do(lambda: self._letters.look(limit + 1, place))
        following = cursors.write_texts("dead", *found[limit - 1].place) if len(found) > limit else None
        return Page([dead_view(each) for each in found[:limit]], following)

    async def count(self) -> int:
        """Return how many lie there; for pages that show it to those only who may see them."""
        return await self._do(self._letters.count)

    async def get(self, who: Identity, letter_id: UUID) -> DeadView:
        """Return one of them."""
        check(who, Permission.DEAD_LETTERS)
        return _there(await self._do(lambda: self._letters.find(str(letter_id))))

    async def replay(self, who: Identity, letter_id: UUID) -> DeadView:
        """Publish a dead letter to its source exchange again, or apply it to the database."""
        check(who, Permission.DEAD_LETTERS)
        loop = asyncio.get_running_loop()

        def apply(letter: DeadLetter) -> bool:
            if letter.run_given_up:
                work = self._retry(who, letter)
            elif is_applied(letter, self._settings):
                work = self._actions.apply_letter(who, letter)
            else:
                return False
            asyncio.run_coroutine_threadsafe(work, loop).result()
            return True

        try:
            letter = await self._do(lambda: self._letters.replay(str(letter_id), apply))
        except NotReplayable as error:
            raise Conflict(f"It stays where it is: {error}.") from None
        view = _there(letter)
        await self._actions.note(who, "replay", "dead", view.id, {"routing_key": view.routing_key})
        return view

    async def drop(self, who: Identity, letter_id: UUID) -> DeadView:
        """Remove one for good."""
        check(who, Permission.DEAD_LETTERS)
        view = _there(await self._do(lambda: self._letters.drop(str(letter_id))))
        await self._actions.note(who, "drop", "dead", view.id, {"routing_key": view.routing_key})
        return view

    async def _retry(self, who: Identity, letter: DeadLetter) -> None:
        try:
            event_id = UUID(json.loads(letter.body)["event_id"])
        except (ValueError, TypeError, KeyError):
            raise NotReplayable("it is no event of ours") from None
        try:
            await self._actions.retry(who, event_id)
        except NotFound:
            raise NotReplayable(f"its run, {event_id}, was pruned") from None

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except Unavailable as error:
            raise ServiceUnavailable(without_secrets(str(error)), _RETRY_SECONDS) from None


def _there(letter: DeadLetter | None) -> DeadView:
    if letter is None:
        raise NotFound("No dead letter has this id; it may be gone, or somebody looks at it at this moment.")
    return dead_view(letter)
