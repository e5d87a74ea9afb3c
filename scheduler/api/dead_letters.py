"""List, replay and delete dead letters, for admins of all tenants. No other API module needs the broker."""

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from scheduler.api import cursors
from scheduler.api.actions import Actions
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import Conflict, NotFound, ServiceUnavailable
from scheduler.api.reads import Reads
from scheduler.commands.replayed_letters import is_applied
from scheduler.domain.errors import Unavailable
from scheduler.ops.logs import without_secrets
from scheduler.rabbit.dead_letter import DeadLetter
from scheduler.rabbit.dead_letter_queue import DeadLetterQueue, LetterPage, NotReplayable
from scheduler.settings import Settings
from scheduler.views.dead_letters import DeadPage, DeadView, dead_view

T = TypeVar("T")
_RETRY_SECONDS = 5
MAX_AT_ONCE = 500  # letters per bulk action
_NOTED = 100  # ids in the audit entry of a bulk action


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Filter for dead letters."""

    kind: str | None = None  # run or message
    job_type: str | None = None
    q: str | None = None  # a part of the reason, the routing key or the body
    succeeded: bool = False  # dead runs that have succeeded since
    event_ids: frozenset[str] = frozenset()  # these runs

    def matches(self, letter: DeadLetter) -> bool:
        """Return whether a letter matches."""
        if self.kind is not None and letter.is_dead_run != (self.kind == "run"):
            return False
        if self.job_type is not None and letter.job_type != self.job_type:
            return False
        if self.succeeded and letter.event_id not in self.event_ids:
            return False
        if self.q is None:
            return True
        text = self.q.lower()
        return text in letter.reason.lower() or text in letter.routing_key.lower() or (
            self.q.encode("utf-8", "replace") in letter.body)


NO_FILTER = DeadFilter()
PageKey = tuple[int, tuple[str, str], DeadFilter]


class DeadLetterService:
    """Reads and changes the dead-letter queue."""

    def __init__(self, actions: Actions, reads: Reads, settings: Settings) -> None:
        self._actions = actions
        self._reads = reads
        self._settings = settings
        self._letters = DeadLetterQueue(settings.amqp_urls, settings.delay_exchanges)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="dead-letters")  # one reader at a time
        self._pages: dict[PageKey, asyncio.Future[LetterPage]] = {}  # not started yet

    async def list(
        self, who: Identity, limit: int, after: str | None = None, wanted: DeadFilter = NO_FILTER
    ) -> DeadPage:
        """Return a page of dead letters, oldest first. Concurrent equal requests share one read."""
        check(who, Permission.DEAD_LETTERS)
        wanted = await self._resolved(wanted)
        key = limit, cursors.read_strings("dead", after), wanted
        shared = self._pages.get(key)
        if shared is None:
            shared = self._pages[key] = asyncio.ensure_future(self._run(lambda: self._read_page(key)))
        page = await asyncio.shield(shared)
        next_cursor = cursors.write_strings("dead", *page.letters[-1].position) if page.more else None
        views = [dead_view(letter) for letter in page.letters]
        return DeadPage(views, next_cursor, page.incomplete, page.matched)

    async def _resolved(self, wanted: DeadFilter) -> DeadFilter:
        """Return the filter with the runs that have succeeded since, if it asks for them."""
        if not wanted.succeeded:
            return wanted
        event_ids = await self._run(self._letters.event_ids)
        statuses = await self._reads.run_statuses(event_ids)
        succeeded = frozenset(key for key, status in statuses.items() if status == "succeeded")
        return replace(wanted, event_ids=succeeded)

    async def replay_all(self, who: Identity, wanted: DeadFilter) -> tuple[int, Sequence[str]]:
        """Replay up to MAX_AT_ONCE matching letters; return their number, and the problems of others."""
        check(who, Permission.DEAD_LETTERS)
        wanted = await self._resolved(wanted)
        loop = asyncio.get_running_loop()
        work = partial(self._letters.replay_all, wanted.matches, partial(self._apply, who, loop), MAX_AT_ONCE)
        replayed, problems = await self._run(work)
        if replayed:
            noted = {"letters": len(replayed), "ids": replayed[:_NOTED]}
            await self._actions.note(who, "replay", "dead", "*", noted)
        return len(replayed), problems

    async def drop_all(self, who: Identity, wanted: DeadFilter) -> int:
        """Delete up to MAX_AT_ONCE matching letters permanently; return their number."""
        check(who, Permission.DEAD_LETTERS)
        wanted = await self._resolved(wanted)
        dropped = await self._run(partial(self._letters.drop_all, wanted.matches, MAX_AT_ONCE))
        if dropped:
            noted = {"letters": len(dropped), "ids": dropped[:_NOTED]}
            await self._actions.note(who, "drop", "dead", "*", noted)
        return len(dropped)

    def _apply(self, who: Identity, loop: asyncio.AbstractEventLoop, letter: DeadLetter) -> bool:
        """Apply a letter to the database, from the reader's thread; False if it must be published instead."""
        if letter.is_dead_run:
            work = self._retry(who, letter)
        elif is_applied(letter, self._settings):
            work = self._actions.apply_letter(who, letter)
        else:
            return False
        asyncio.run_coroutine_threadsafe(work, loop).result()
        return True

    def _read_page(self, key: PageKey) -> LetterPage:
        self._pages.pop(key, None)  # later requests may be for a newer letter
        limit, after, wanted = key
        return self._letters.page(limit, after, wanted.matches)

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
        apply = partial(self._apply, who, asyncio.get_running_loop())
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
