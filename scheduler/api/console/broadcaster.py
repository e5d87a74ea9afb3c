"""Poll the database for all live pages: about every second while pages are open, otherwise every ten seconds."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from scheduler.api.console.activity_history import SAMPLE_SECONDS, ActivityHistory, ActivitySample, sample
from scheduler.api.console.subscriptions import JobUpdates, PollRequest, PollResult, RunUpdates, Subscriptions
from scheduler.api.identity import Identity
from scheduler.api.problems import ServiceUnavailable, TooManyRequests
from scheduler.ops.logs import get_logger
from scheduler.postgres.console_queries import SystemSnapshot

log = get_logger(__name__)

TICK_SECONDS = 1.1  # keeps all polls together below two statements per second
_FRESH_SECONDS = 3.0
_SHARE = 20  # polls take at most a twentieth of the time
_SILENCE_SECONDS = 15.0  # a comment line after this keeps proxies from closing an idle connection

Poll: TypeAlias = Callable[[PollRequest], Awaitable[PollResult]]


def seconds_until_poll(duration: float, *, watched: bool) -> float:
    """Return the pause after a poll; a slow poll must not stop the updates of open pages for long."""
    rest = _SHARE * duration
    return min(max(TICK_SECONDS, rest), SAMPLE_SECONDS) if watched else max(SAMPLE_SECONDS, rest)


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """The latest state for all pages; `sampled` is the sample from this poll, if any."""

    number: int
    pulse: SystemSnapshot | None = None
    failing: tuple[dict[str, Any], ...] = ()
    causes: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)  # see SystemSnapshot
    sampled: ActivitySample | None = None
    runs: RunUpdates = field(default_factory=RunUpdates)
    jobs: JobUpdates = field(default_factory=JobUpdates)
    problem: str | None = None


class StreamLimiter:
    """Limits the live pages of each user: each holds a connection, and one user must not hold them all."""

    MAX_STREAMS = 500
    MAX_PER_USER = 20

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str | None]] = Counter()

    def start(self, who: Identity) -> Callable[[], None]:
        """Count a stream and return the function that ends it. Raises TooManyRequests or ServiceUnavailable."""
        key = (who.sub, who.tenant)
        if self._counts[key] >= self.MAX_PER_USER:
            raise TooManyRequests(f"{self.MAX_PER_USER} of your pages are already live; this one is not updated.",
                                  10)
        if self._counts.total() >= self.MAX_STREAMS:
            raise ServiceUnavailable("Too many pages are already live; this one is not updated for now.")
        self._counts[key] += 1
        return lambda: self._leave(key)

    def _leave(self, key: tuple[str, str | None]) -> None:
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]


class Broadcaster:
    """Polls the database and notifies the listeners; all on the event loop's thread."""

    def __init__(self, poll: Poll, clock: Callable[[], float] = time.monotonic) -> None:
        self._query = poll
        self._clock = clock
        self.history = ActivityHistory()
        self.snapshot = LiveSnapshot(0)
        self.listeners = 0
        self.polls = 0  # started so far; a snapshot has the number of its poll
        self.watching = Subscriptions()
        self._changed = asyncio.Event()
        self._listener_added = asyncio.Event()
        self._polling = asyncio.Lock()
        self._pulse_at = self._sample_due = 0.0
        self._stopped = False

    async def run(self) -> None:
        """Poll repeatedly until stopped; watched runs twice as often as everything else."""
        full = True
        while not self._stopped:
            started = self._clock()
            if full or self.watching.wants(pulse=False, failures=False).runs:
                await self.poll(full=full)
            duration = self._clock() - started
            full = not (full and self.listeners)
            await self._pause(seconds_until_poll(duration, watched=bool(self.listeners)))

    async def poll(self, *, full: bool = True) -> None:
        """Poll once and notify the listeners of the result, also of an unavailable database."""
        async with self._polling:
            self.polls += 1
            due = full and self._clock() >= self._sample_due
            try:
                result = await self._query(self.watching.wants(pulse=full, failures=due))
            except Exception as error:  # noqa: BLE001 - pages continue with the last state after any error
                log.debug("console poll failed", problem=str(error))
                self._notify(replace(self.snapshot, number=self.polls, sampled=None, problem=str(error)))
                return
            self._notify(self._updated(result, due=due))

    def _updated(self, result: PollResult, *, due: bool) -> LiveSnapshot:
        """Return the snapshot after a poll: parts that were not polled stay unchanged."""
        before, pulse = self.snapshot, result.pulse
        sampled = sample(pulse) if due and pulse is not None else None
        if sampled is not None:
            self._sample_due = self._clock() + SAMPLE_SECONDS
            self.history.add(sampled)
        if pulse is not None:
            self._pulse_at = self._clock()
        failing = before.failing if pulse is None or pulse.failing is None else tuple(pulse.failing)
        runs = before.runs if result.runs is None else replace(result.runs, poll=self.polls)
        jobs = before.jobs if result.jobs is None else replace(result.jobs, poll=self.polls)
        causes = before.causes if pulse is None or pulse.causes is None else pulse.causes
        return LiveSnapshot(self.polls, pulse or before.pulse, failing, causes, sampled, runs, jobs)

    async def fresh(self) -> LiveSnapshot:
        """Return the latest snapshot, after a poll if it is older than a few seconds."""
        if self.snapshot.pulse is None or self._clock() - self._pulse_at > _FRESH_SECONDS:
            await self.poll()
        return self.snapshot

    async def snapshots(self) -> AsyncIterator[LiveSnapshot | None]:
        """Yield each new snapshot, or None after a period without one, until stopped."""
        self.listeners += 1
        self._listener_added.set()
        try:
            seen = -1
            while not self._stopped:
                changed = self._changed
                if self.snapshot.number != seen and self.snapshot.number:
                    seen = self.snapshot.number
                    yield self.snapshot
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), _SILENCE_SECONDS)
                except TimeoutError:
                    yield None
        finally:
            self.listeners -= 1

    def stop(self) -> None:
        """End all streams, and stop polling."""
        self._stopped = True
        self._changed.set()
        self._listener_added.set()

    def _notify(self, snapshot: LiveSnapshot) -> None:
        self.snapshot = snapshot
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _pause(self, seconds: float) -> None:
        """Wait for the next poll; the first listener ends a long pause."""
        if self.listeners:
            await asyncio.sleep(seconds)
            return
        self._listener_added.clear()
        try:
            await asyncio.wait_for(self._listener_added.wait(), seconds)
        except TimeoutError:
            return
