"""One broadcaster for all browsers: it looks while anybody watches, and once in ten seconds while nobody does."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from scheduler.api.console.activity_history import SAMPLE_SECONDS, ActivityHistory, ActivitySample, sample
from scheduler.api.console.subscriptions import JobUpdates, PollRequest, PollResult, RunUpdates, Subscriptions
from scheduler.api.identity import Identity
from scheduler.api.problems import ServiceUnavailable, TooManyRequests
from scheduler.ops.logs import get_logger
from scheduler.postgres.console_queries import SystemSnapshot

log = get_logger(__name__)

TICK_SECONDS = 1.1  # so that all looks together are less than two statements a second
_FRESH_SECONDS = 3.0
_SHARE = 20  # a twentieth of the time at most goes into looking
_SILENCE_SECONDS = 15.0  # a line in between keeps proxies from closing a connection that has nothing to say

Take: TypeAlias = Callable[[PollRequest], Awaitable[PollResult]]


def seconds_until_poll(took: float, *, watched: bool) -> float:
    """Return how long to rest after a look; one that was held up must not leave those who watch in the dark."""
    rest = _SHARE * took
    return min(max(TICK_SECONDS, rest), SAMPLE_SECONDS) if watched else max(SAMPLE_SECONDS, rest)


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """What the broadcaster knows; `sampled` is the sample that was taken at this look, if one was."""

    number: int
    pulse: SystemSnapshot | None = None
    failing: tuple[dict[str, Any], ...] = ()
    sampled: ActivitySample | None = None
    runs: RunUpdates = field(default_factory=RunUpdates)
    jobs: JobUpdates = field(default_factory=JobUpdates)
    problem: str | None = None


class StreamLimiter:
    """Counts the live pages of each user: each holds a connection, and one user must not hold them all."""

    MOST = 500
    MOST_OF_ONE = 20

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str | None]] = Counter()

    def take(self, who: Identity) -> Callable[[], None]:
        """Count a stream and return what ends it. Raises TooManyRequests or ServiceUnavailable at the limit."""
        key = (who.sub, who.tenant)
        if self._counts[key] >= self.MOST_OF_ONE:
            raise TooManyRequests(f"{self.MOST_OF_ONE} of your pages are live already; this one stays as it is.",
                                  10)
        if self._counts.total() >= self.MOST:
            raise ServiceUnavailable("Too many pages are live already; this one stays as it was loaded for now.")
        self._counts[key] += 1
        return lambda: self._leave(key)

    def _leave(self, key: tuple[str, str | None]) -> None:
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]


class Broadcaster:
    """Looks at the database and tells whoever waits; all on the event loop's thread."""

    def __init__(self, take: Take, clock: Callable[[], float] = time.monotonic) -> None:
        self._take = take
        self._clock = clock
        self.history = ActivityHistory()
        self.moment = LiveSnapshot(0)
        self.listeners = 0
        self.looks = 0  # begun so far; the moment that a look leads to has its number
        self.watching = Subscriptions()
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._looking = asyncio.Lock()
        self._pulse_at = self._sample_due = 0.0
        self._stopped = False

    async def run(self) -> None:
        """Look again and again until stopped; at the runs that somebody watches twice as often as at all else."""
        whole = True
        while not self._stopped:
            began = self._clock()
            if whole or self.watching.wants(pulse=False, failures=False).runs:
                await self.look(whole=whole)
            took = self._clock() - began
            whole = not (whole and self.listeners)
            await self._pause(seconds_until_poll(took, watched=bool(self.listeners)))

    async def look(self, *, whole: bool = True) -> None:
        """Look once and tell what was seen; that the database is away is told too."""
        async with self._looking:
            self.looks += 1
            due = whole and self._clock() >= self._sample_due
            try:
                seen = await self._take(self.watching.wants(pulse=whole, failures=due))
            except Exception as error:  # noqa: BLE001 - whatever it was, pages go on showing what is known
                log.debug("console has no pulse", problem=str(error))
                self._tell(replace(self.moment, number=self.looks, sampled=None, problem=str(error)))
                return
            self._tell(self._moment(seen, due=due))

    def _moment(self, seen: PollResult, *, due: bool) -> LiveSnapshot:
        """Return what is known after a look: what it did not look for stays as it was."""
        before, pulse = self.moment, seen.pulse
        taken = sample(pulse) if due and pulse is not None else None
        if taken is not None:
            self._sample_due = self._clock() + SAMPLE_SECONDS
            self.history.add(taken)
        if pulse is not None:
            self._pulse_at = self._clock()
        failing = before.failing if pulse is None or pulse.failing is None else tuple(pulse.failing)
        runs = before.runs if seen.runs is None else replace(seen.runs, look=self.looks)
        jobs = before.jobs if seen.jobs is None else replace(seen.jobs, look=self.looks)
        return LiveSnapshot(self.looks, pulse or before.pulse, failing, taken, runs, jobs)

    async def fresh(self) -> LiveSnapshot:
        """Return what is known, after a look where that is not of the last moments."""
        if self.moment.pulse is None or self._clock() - self._pulse_at > _FRESH_SECONDS:
            await self.look()
        return self.moment

    async def moments(self) -> AsyncIterator[LiveSnapshot | None]:
        """Yield each new moment, None after a while in which there was none, until stopped."""
        self.listeners += 1
        self._wanted.set()
        try:
            seen = -1
            while not self._stopped:
                changed = self._changed
                if self.moment.number != seen and self.moment.number:
                    seen = self.moment.number
                    yield self.moment
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), _SILENCE_SECONDS)
                except TimeoutError:
                    yield None
        finally:
            self.listeners -= 1

    def stop(self) -> None:
        """End every stream and the looking."""
        self._stopped = True
        self._changed.set()
        self._wanted.set()

    def _tell(self, moment: LiveSnapshot) -> None:
        self.moment = moment
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _pause(self, seconds: float) -> None:
        """Wait until it is time to look again; the first browser that comes does not wait for a slow tick."""
        if self.listeners:
            await asyncio.sleep(seconds)
            return
        self._wanted.clear()
        try:
            await asyncio.wait_for(self._wanted.wait(), seconds)
        except TimeoutError:
            return
