"""Prove that all queued results were read before an attempt without a result is ended.

The consumers' part is commands/result_reader.py. Without a consumer no attempt is ended, as no result is read.
"""

import math
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from scheduler.domain.runs.run import Run
from scheduler.emitting.run_messages import marker_message
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.claims import LONG_AGO, ClaimSession
from scheduler.postgres.result_readers import MarkerState, check_markers, remove_silent, wake_expired
from scheduler.postgres.runs.due import POSTPONED_SECONDS
from scheduler.rabbit.frames import Publishable

log = get_logger(__name__)
_unread = ThrottledWarning(log, "expired attempts stay open: no consumer reads results")
_waiting = ThrottledWarning(log, "expired attempts wait until all results are read")

# After an outage of the broker, workers reconnect within ten seconds and report at once.
GRACE = timedelta(seconds=15)
# Pause before the next marker while others are unread; it grows with the age of the oldest.
MIN_PAUSE, MAX_PAUSE = timedelta(seconds=1), timedelta(seconds=60)
MAX_SENT = 100
_WARN_AFTER = timedelta(seconds=10)


class ResultsProbe:
    """Sends markers and tracks up to when all results were read, by the database's clock."""

    def __init__(self) -> None:
        self._sent: dict[str, datetime] = {}  # markers not yet read, oldest first
        self._last_sent = LONG_AGO
        self._read_until = LONG_AGO  # all results published before were read
        self._connected_since = LONG_AGO  # the broker was reachable from then until `_read_until`
        self._readers = False  # whether a live consumer records markers
        self._grace_ends = math.inf  # when to check attempts that expired during an outage; monotonic clock
        self._resuming = False
        self._resumed_at = LONG_AGO

    def resume(self) -> None:
        """Record that the broker accepts messages again after it blocked publishers, workers included."""
        self._resuming = True

    def before_claim(self, session: ClaimSession) -> None:
        """Check whether the markers were read; if so, make expired attempts due at once."""
        if time.monotonic() >= self._grace_ends:
            self._grace_ends = math.inf
            wake_expired(session, POSTPONED_SECONDS)
        if not self._sent:
            return
        states = check_markers(session, self._sent)
        if states[0].silent:
            remove_silent(session, states[0].silent)
            log.info("silent consumer dropped: other consumers read its results", consumers=len(states[0].silent))
            self._forget()
        elif not self._learn(states):
            return
        wake_expired(session, POSTPONED_SECONDS)

    def after_claim(self, session: ClaimSession, runs: Iterable[Run], now: datetime) -> None:
        """Check which consumers read results, if attempts may have expired that no marker covers."""
        if self._resuming:
            self._resuming, self._resumed_at = False, now
        if any(run.expires_at is not None and run.expires_at <= now and not self.covers(run) for run in runs):
            self._learn(check_markers(session, self._sent))

    def _learn(self, states: Sequence[MarkerState]) -> bool:
        """Update the state; return whether expired attempts may now be decided."""
        readers = states[0]
        self._readers = readers.connected_since is not None
        if readers.unmarked:
            # A consumer of release 0.2 does not report markers: as in that release, time alone decides.
            self._sent.clear()
            self._read_until, self._connected_since = readers.checked_at, LONG_AGO
            return True
        if any(state.returned for state in states):
            self._forget()
            return True
        accepted = [
            self._sent[state.id] for state in states if state.id in self._sent and state.read and not state.unread
        ]
        if not accepted:
            return False
        self._read_until, self._connected_since = max(accepted), readers.connected_since or LONG_AGO
        self._sent = {marker: at for marker, at in self._sent.items() if at > self._read_until}
        return True

    def _forget(self) -> None:
        """Drop the markers that were sent: requeued results may be behind them."""
        self._sent.clear()

    def covers(self, run: Run) -> bool:
        """Return whether all results reported before the attempt expired were read."""
        return run.expires_at is not None and self._needed(run, run.expires_at) <= self._read_until

    def _needed(self, run: Run, expires_at: datetime) -> datetime:
        """Return the instant up to which results must be read before the current attempt is ended."""
        for outage_end in (self._connected_since, self._resumed_at):
            if run.emitted_at is not None and run.emitted_at < outage_end:
                expires_at = max(expires_at, outage_end + GRACE)
        return expires_at

    def marker(self, run: Run, now: datetime) -> Publishable | None:
        """Return the marker to send for an expired attempt, None if one is in flight or it is too early."""
        if not self._readers:
            _unread.warning(do="start `scheduler consumer`")
            return None
        early = self._needed(run, run.expires_at or now) - now
        if early > timedelta(0):
            self._grace_ends = min(self._grace_ends, time.monotonic() + early.total_seconds())
            return None
        if self._sent:
            age = now - next(iter(self._sent.values()))
            if age > _WARN_AFTER:
                _waiting.warning(seconds=math.ceil(age.total_seconds()),
                                 do="check that `scheduler consumer` runs and keeps up with scheduler_results")
            if now - self._last_sent < min(max(age / 4, MIN_PAUSE), MAX_PAUSE):
                return None
        while len(self._sent) >= MAX_SENT:
            del self._sent[next(iter(self._sent))]
        marker_id = str(uuid4())
        self._sent[marker_id] = self._last_sent = now
        return marker_message(marker_id)
