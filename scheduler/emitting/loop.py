"""The emitting loop: while one batch is settled and one waits for its confirms, the next is claimed."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Any

from scheduler.emitting.batch import Batch
from scheduler.emitting.poll_schedule import PollSchedule
from scheduler.emitting.source import Source
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.connection import LockTimeout
from scheduler.postgres.wakeup import Wakeup
from scheduler.rabbit.event_publisher import RECHECK_SECONDS, EventPublisher

log = get_logger(__name__)
_locked = ThrottledWarning(log, "nothing is emitted: another session has locked a table")

SESSIONS = 3
# Maintenance locks tables briefly; that needs no warning.
_WARN_AFTER_SECONDS = 1.0
# Wake-ups within this time are served by one claim.
REST_SECONDS = 0.003
# If the unsettled batches hold more than this, they are settled before the next claim. In memory they take a few
# times as much: rows, bodies and frames.
MAX_UNSETTLED_BYTES = 8 * 1024 * 1024


class Emitter:
    """Serves its sources in turn.

    Under load a separate thread settles one batch and the broker confirms another, while the next is claimed and
    published. So Postgres settles and claims at the same time, and neither waits for the broker.
    """

    def __init__(
        self, sources: Sequence[Source[Any, Any]], sessions: Sequence[ClaimSession], wakeup: Wakeup,
        publisher: EventPublisher, *, batch_size: int, poll: float,
    ) -> None:
        self._schedules = {source.kind: PollSchedule(source, poll) for source in sources}
        self._free = list(sessions)
        for session in sessions:
            session.before_waiting = self.settle
        self._wakeup = wakeup
        self._publisher = publisher
        self._batch_size = batch_size
        self._in_flight: list[Batch[Any, Any]] = []
        self._stalled: list[Batch[Any, Any]] = []  # the broker has not confirmed them in the usual time
        self._settling_thread = ThreadPoolExecutor(1, thread_name_prefix="settling")
        self._settling: tuple[Batch[Any, Any], Future[datetime | None]] | None = None
        self._renew_channel = False

    def run_once(self) -> None:
        """Emit a batch of each source that may have due rows; sleep until the next row is due."""
        started = time.monotonic()
        schedules = (schedule for schedule in self._schedules.values() if schedule.next_poll <= started)
        batches = [batch for batch in map(self._emit, schedules) if batch is not None]
        if any(batch.full for batch in batches):
            self._settle_stalled()
            self._listen(0.0)
            return
        self._finish_settling()
        for batch in list(self._in_flight):
            self._settle_or_defer(batch)
        self._settle_stalled()
        if self._renew_channel:
            self._renew_channel = False
            self._publisher.renew()
        emitted = any(not batch.empty for batch in batches)
        wake_at = min(schedule.next_poll for schedule in self._schedules.values())
        seconds = max(wake_at, started + REST_SECONDS if emitted else 0.0) - time.monotonic()
        self._listen(min(seconds, RECHECK_SECONDS) if self._stalled else seconds)

    def _emit(self, schedule: PollSchedule) -> Batch[Any, Any] | None:
        """Claim and publish a batch, then settle the previous ones; under load, in the background.

        None if another session's lock on a table would prevent settling.
        """
        if not self._free or sum(batch.size for batch in self._unsettled) > MAX_UNSETTLED_BYTES:
            self.settle()
        try:
            batch = Batch.claimed(schedule.source, self._free[0], self._batch_size, schedule.watermark.bounds())
        except LockTimeout as error:
            if schedule.locked() > _WARN_AFTER_SECONDS:
                _locked.warning(kind=schedule.source.kind, pids=self._free[0].lock_holders(), problem=str(error),
                                do="find the transaction in pg_stat_activity by its pid, and end it")
            return None
        del self._free[0]
        schedule.claimed(batch)
        batch.publish(self._publisher)
        before = list(self._in_flight)
        self._in_flight.append(batch)
        # An urgent batch waits neither for the settlement of the previous ones nor for the next claim.
        for unsettled in (batch, *before) if batch.urgent else before:
            if batch.full and not batch.urgent:
                self._settle_in_background(unsettled)
            else:
                self._settle_or_defer(unsettled)
        return batch

    @property
    def _unsettled(self) -> list[Batch[Any, Any]]:
        return [*self._in_flight, *self._stalled, *([self._settling[0]] if self._settling is not None else [])]

    def settle(self) -> None:
        """Settle all batches, waiting for their confirms."""
        self._finish_settling()
        for batch in [*self._stalled, *self._in_flight]:
            self._settle(batch)

    def close(self) -> None:
        """Stop the thread."""
        self._settling_thread.shutdown(wait=False)

    def _settle(self, batch: Batch[Any, Any]) -> None:
        (self._stalled if batch in self._stalled else self._in_flight).remove(batch)
        self._settled(batch, batch.settle())

    def _settle_or_defer(self, batch: Batch[Any, Any]) -> None:
        """Settle a batch, or defer that while its confirms are overdue and a session is free.

        The confirms of the next batches tell whether the whole broker is slow or only the queues of some routes.
        """
        if not self._free or batch.confirmed():
            self._settle(batch)
            return
        self._in_flight.remove(batch)
        self._stalled.append(batch)
        self._schedules[batch.source.kind].deferred(batch)

    def _settle_stalled(self) -> None:
        for batch in list(self._stalled):
            if batch.confirmed():
                self._settle(batch)

    def _settle_in_background(self, batch: Batch[Any, Any]) -> None:
        self._finish_settling()
        self._in_flight.remove(batch)
        self._settling = batch, self._settling_thread.submit(batch.settle)

    def _finish_settling(self) -> None:
        """Wait for the batch that the thread is settling, if there is one."""
        if self._settling is not None:
            (batch, settled), self._settling = self._settling, None
            self._settled(batch, settled.result())

    def _settled(self, batch: Batch[Any, Any], due_again: datetime | None) -> None:
        self._free.append(batch.session)
        self._renew_channel = self._renew_channel or batch.renew_channel
        self._schedules[batch.source.kind].settled(batch, due_again)

    def _listen(self, seconds: float) -> None:
        """Wait for wake-ups from consumers. Under load too: Postgres closes a connection that never reads."""
        for kind, due_at in self._wakeup.wait(seconds).items():
            for schedule in self._schedules.values():
                if kind in (schedule.source.kind, None):
                    schedule.notify(due_at)
