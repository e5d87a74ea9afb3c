"""Decide when to poll a source next, and where the index scan of its claim starts."""

import math
import time
from datetime import datetime
from typing import Any

from scheduler.emitting.batch import Batch
from scheduler.emitting.source import Source
from scheduler.postgres.claims import LONG_AGO

# A replica that finds its row claimed by another polls this much later next time.
YIELD_SECONDS = 0.0015
# Urgent rows wait during a full scan, which reads the due rows of the other classes too: it may take only a small
# share of the time. But rows released by a dead replica must be found well within 30 seconds, and the database may
# need 15 of these to release them.
FULL_SCAN_SHARE = 300.0
MAX_FULL_SCAN_SECONDS = 8.0
# The backoff while another session has locked a table.
_MIN_LOCKED_SECONDS, _MAX_LOCKED_SECONDS = 0.02, 1.0


class LowWatermark:
    """The instant at which the claim's index scan starts, so that it skips rows claimed before.

    Periodically a scan starts from the bottom, because rows may have appeared below the watermark. If that takes
    long, because another client's old snapshot keeps dead entries in the index, it is done less often.
    """

    def __init__(self, every: float, classes: int) -> None:
        self._every = every
        self._next_full_scan = 0.0
        self._bottom = (LONG_AGO,) * classes
        self._bounds = self._bottom

    def lower(self, to: datetime) -> None:
        """Include rows that may have become due at this instant or later."""
        self._bounds = tuple(min(bound, to) for bound in self._bounds)

    def bounds(self) -> tuple[datetime, ...]:
        """Return the start of the scan for each priority class."""
        if time.monotonic() >= self._next_full_scan:
            self._bounds = self._bottom
        return self._bounds

    def rise(self, to: tuple[datetime, ...], claim_seconds: float) -> None:
        """Skip rows up to this instant of each class from now on: a claim has them."""
        if self._bounds == self._bottom:
            pause = min(FULL_SCAN_SHARE * claim_seconds, MAX_FULL_SCAN_SECONDS)
            self._next_full_scan = time.monotonic() + max(self._every, pause)
        self._bounds = to


class PollSchedule:
    """A source, and when its next row is expected to fall due. Times are monotonic."""

    def __init__(self, source: Source[Any, Any], poll: float) -> None:
        self.source = source
        # Consumers announce rows of this source long before they fall due, so it is polled less often.
        self._notified_early = source.notice_seconds is not None
        poll = max(poll, source.notice_seconds or 0.0)
        self.watermark = LowWatermark(poll, source.classes)
        self.next_poll = 0.0
        self._poll = poll
        self._latest: Batch[Any, Any] | None = None
        self._due_again: list[float] = []
        self._expected = False
        self._locked_since: float | None = None
        self._locked_until = 0.0

    def locked(self) -> float:
        """Back off because another session has locked a table; return the seconds since this started."""
        now = time.monotonic()
        if self._locked_since is None:
            self._locked_since = now
        waited = now - self._locked_since
        self.next_poll = self._locked_until = now + min(max(waited, _MIN_LOCKED_SECONDS), _MAX_LOCKED_SECONDS)
        return waited

    def claimed(self, batch: Batch[Any, Any]) -> None:
        """Record a claim. After a full batch more rows may be due; after another, its settlement decides."""
        self.watermark.rise(batch.resume_from, batch.claim_seconds)
        self._latest = batch
        self._locked_since = None
        self.next_poll = 0.0 if batch.full else math.inf

    def settled(self, batch: Batch[Any, Any], due_again: datetime | None) -> None:
        """Record when the first settled row is due again.

        That may be below the watermark, because a batch claimed in the meantime may have raised it.
        """
        if due_again is not None:
            self.watermark.lower(due_again)
            self._due_again.append(0.0 if due_again == LONG_AGO else batch.steady(due_again))
            # The latest batch may have been settled before this one.
            self.next_poll = min(self.next_poll, self._due_again[-1])
        if batch is self._latest:
            self._plan(batch)

    def deferred(self, batch: Batch[Any, Any]) -> None:
        """Record that a batch waits for its confirms, so that others can be claimed."""
        if batch is self._latest:
            self._plan(batch)

    def notify(self, due_at: datetime) -> None:
        """Record a consumer's message that a row is due at this instant."""
        self.watermark.lower(due_at)
        if not self._notified_early or self._latest is None or due_at == LONG_AGO:
            self.next_poll = 0.0
        else:
            self.next_poll = min(self.next_poll, self._latest.steady(due_at))
        self.next_poll = max(self.next_poll, self._locked_until)

    def _plan(self, batch: Batch[Any, Any]) -> None:
        """Poll when the next row is due, or after the poll interval."""
        due_times, self._due_again = self._due_again, []
        if batch.full:
            self.next_poll, self._expected = 0.0, False
            return
        if batch.next_due is not None:
            due_times.append(batch.next_due)
        no_rows = batch.empty and batch.next_due is None
        latest = time.monotonic() + (max(self._poll, self.source.idle_seconds) if no_rows else self._poll)
        late = YIELD_SECONDS if self._expected and batch.empty else 0.0
        soonest = min(due_times, default=latest) + late
        self._expected = soonest < latest
        self.next_poll = min(soonest, latest)
