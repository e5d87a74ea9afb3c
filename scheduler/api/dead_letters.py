"""List, replay and delete dead letters, for admins of all tenants. No other API module needs the broker."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from scheduler.rabbit.dead_letter_queue import DeadLetterQueue, LetterPage, NotReplayable
from scheduler.settings import Settings
from scheduler.views.dead_letters import DeadPage, DeadView, dead_view

T = TypeVar("T")
PageKey = tuple[int, tuple[str, str]]
_RETRY_SECONDS = 5


class DeadLetterService:
    """Reads and changes the dead-letter queue."""

    def __init__(self, actions: Actions, settings: Settings) -> None:
        self._actions = actions
        self._settings = settings
        self._letters = DeadLetterQueue(settings.amqp_urls, settings.delay_exchanges)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="dead-letters")  # one reader at a time
        self._pages: dict[PageKey, asyncio.Future[LetterPage]] = {}  # not started yet

    async def list(self, who: Identity, limit: int, after: str | None = None) -> DeadPage:
        """Return a page of dead letters, oldest first. Concurrent equal requests share one read."""
        check(who, Permission.DEAD_LETTERS)
        key = limit, cursors.read_strings("dead", after)
        shared = self._pages.get(key)
        if shared is None:
            shared = self._pages[key] = asyncio.ensure_future(self._run(lambda: self._read_page(key)))
        page = await asyncio.shield(shared)
        next_cursor = cursors.write_strings("dead", *page.letters[-1].position) if page.more else None
        return DeadPage([dead_view(letter) for letter in page.letters], next_cursor, page.incomplete)

    def _read_page(self, key: PageKey) -> LetterPage:
        self._pages.pop(key, None)  # later requests may be for a newer letter
        return self._letters.page(*key)

    async def count(self) -> int:
        """Return the number of dead letters. Checks no permission: the caller must."""
        return await self._run(self._letters.count)

    async def get(self, who: Identity, letter_id: UUID) -> DeadView:
        """Return one dead letter."""
        check(who, Permission.DEAD_LETTERS)
        return _required_view(await self._run(lambda: self._letters.find(str(letter_id))))

    async def replay(self, who: Identity, letter_id: UUID) -> DeadView:
        """Publish a dead letter to its source exchange again, or apply it to the database."""
        check(who, Permission.DEAD_LETTERS)
        loop = asyncio.get_running_loop()

        def apply(letter: DeadLetter) -> bool:
            if letter.is_dead_run:
                work = self._retry(who, letter)
            elif is_applied(letter, self._settings):
                work = self._actions.apply_letter(who, letter)
            else:
                return False
            asyncio.run_coroutine_threadsafe(work, loop).result()
            return True

        try:
            letter = await self._run(lambda: self._letters.replay(str(letter_id), apply))
        except NotReplayable as error:
            raise Conflict(f"The dead letter was not replayed: {error}.") from None
        view = _required_view(letter)
        await self._actions.note(who, "replay", "dead", view.id, {"routing_key": view.routing_key})
        return view

    async def drop(self, who: Identity, letter_id: UUID) -> DeadView:
        """Delete a dead letter permanently."""
        check(who, Permission.DEAD_LETTERS)
        view = _required_view(await self._run(lambda: self._letters.drop(str(letter_id))))
        await self._actions.note(who, "drop", "dead", view.id, {"routing_key": view.routing_key})
        return view

    async def _retry(self, who: Identity, letter: DeadLetter) -> None:
        try:
            event_id = UUID(json.loads(letter.body)["event_id"])
        except (ValueError, TypeError, KeyError):
            raise NotReplayable("its body is not an event of the scheduler") from None
        try:
            await self._actions.retry(who, event_id)
        except NotFound:
            raise NotReplayable(f"its run, {event_id}, was pruned") from None

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, work)
        except Unavailable as error:
            raise ServiceUnavailable(without_secrets(str(error)), _RETRY_SECONDS) from None


def _required_view(letter: DeadLetter | None) -> DeadView:
    if letter is None:
        raise NotFound("No dead letter in the part of the queue that was read has this id; it was removed, or "
                       "another request is reading it.")
    return dead_view(letter)
