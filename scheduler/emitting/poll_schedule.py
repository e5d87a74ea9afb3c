"""When to look at a source again, and from where its claim's index scan may begin."""

import math
import time
from datetime import datetime
from typing import Any

from scheduler.emitting.batch import Batch
from scheduler.emitting.source import Source
from scheduler.postgres.claims import LONG_AGO

# Who woke for something and found it taken lets the other go first next time, and does not slow it down.
YIELD_SECONDS = 0.0015
# What is urgent waits for a look from the bottom, which walks over all that is due of the other classes: it takes
# a small part of the time. But what a replica that died has let go of must be found well before 30 seconds are
# over, of which the database itself may take 15.
LOOK_SHARE = 300.0
MOST_LOOK_SECONDS = 8.0
# The backoff while another session has locked a table.
_LEAST_LOCKED_SECONDS, _MOST_LOCKED_SECONDS = 0.02, 1.0


class LowWatermark:
    """Where the claim's index scan may begin, so that it does not walk over what was claimed already.

    Now and then, and whenever something may have come below it, the scan starts from the very bottom. Where
    that takes long, because another client's old snapshot keeps what is dead in the index, it comes less often.
    """

    def __init__(self, every: float, classes: int) -> None:
        self._every = every
        self._next_look = 0.0
        self._bottom = (LONG_AGO,) * classes
        self._bounds = self._bottom

    def lower(self, to: datetime) -> None:
        """Something may have come from this moment on."""
        self._bounds = tuple(min(bound, to) for bound in self._bounds)

    def bounds(self) -> tuple[datetime, ...]:
        """Return where to begin, for each class of priority."""
        if time.monotonic() >= self._next_look:
            self._bounds = self._bottom
        return self._bounds

    def rise(self, to: tuple[datetime, ...], claim_seconds: float) -> None:
        """A claim has taken all up to this moment of each class."""
        if self._bounds == self._bottom:
            pause = min(LOOK_SHARE * claim_seconds, MOST_LOOK_SECONDS)
            self._next_look = time.monotonic() + max(self._every, pause)
        self._bounds = to


class PollSchedule:
    """One source, and when something of it is expected to fall due; times are the steady clock's."""

    def __init__(self, source: Source[Any, Any], poll: float) -> None:
        self.source = source
        # One that is told of things long before they fall due looks less often by itself, and not before it must.
        self._told_early = source.look_seconds is not None
        poll = max(poll, source.look_seconds or 0.0)
        self.watermark = LowWatermark(poll, source.classes)
        self.next_look = 0.0
        self._poll = poll
        self._latest: Batch[Any, Any] | None = None
        self._due_again: list[float] = []
        self._expected = False
        self._locked_since: float | None = None
        self._locked_until = 0.0

    def locked(self) -> float:
        """Back off because another session has locked a table; return for how many seconds it has."""
        now = time.monotonic()
        if self._locked_since is None:
            self._locked_since = now
        waited = now - self._locked_since
        self.next_look = self._locked_until = now + min(max(waited, _LEAST_LOCKED_SECONDS), _MOST_LOCKED_SECONDS)
        return waited

    def claimed(self, batch: Batch[Any, Any]) -> None:
        """Note what was claimed: after a full batch there may be more, after another its settlement tells."""
        self.watermark.rise(batch.resume_from, batch.claim_seconds)
        self._latest = batch
        self._locked_since = None
        self.next_look = 0.0 if batch.full else math.inf

    def settled(self, batch: Batch[Any, Any], due_again: datetime | None) -> None:
        """Note when the first of what was settled is due again.

        That may be below the watermark: another batch may have been claimed meanwhile and have raised it.
        """
        if due_again is not None:
            self.watermark.lower(due_again)
            self._due_again.append(0.0 if due_again == LONG_AGO else batch.steady(due_again))
            # The latest may have been settled before this one, and then knows nothing of it.
            self.next_look = min(self.next_look, self._due_again[-1])
        if batch is self._latest:
            self._plan(batch)

    def deferred(self, batch: Batch[Any, Any]) -> None:
        """Note that a batch waits for its confirms, and that others may be claimed meanwhile."""
        if batch is self._latest:
            self._plan(batch)

    def told(self, moment: datetime) -> None:
        """A consumer says that there is something new from this moment on."""
        self.watermark.lower(moment)
        if not self._told_early or self._latest is None or moment == LONG_AGO:
            self.next_look = 0.0
        else:
            self.next_look = min(self.next_look, self._latest.steady(moment))
        self.next_look = max(self.next_look, self._locked_until)

    def _plan(self, batch: Batch[Any, Any]) -> None:
        """Look again when the next is due, or when the poll interval is over.

        As the next claim takes a while to begin, it does not come too early.
        """
        again, self._due_again = self._due_again, []
        if batch.full:
            self.next_look, self._expected = 0.0, False
            return
        if batch.next_due is not None:
            again.append(batch.next_due)
        nothing = batch.empty and batch.next_due is None
        latest = time.monotonic() + (max(self._poll, self.source.idle_seconds) if nothing else self._poll)
        late = YIELD_SECONDS if self._expected and batch.empty else 0.0
        soonest = min(again, default=latest) + late
        self._expected = soonest < latest
        self.next_look = min(soonest, latest)
