"""The one loop for whatever falls due: one batch is settled, one waits for its confirms, and one is claimed."""

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
# Brief locks, as maintenance takes them, are no news.
_WARN_AFTER_SECONDS = 1.0
# Wake-ups closer together than this become one.
REST_SECONDS = 0.003
# While the batches under way hold more than this, none is claimed beside them. In memory they take a few times as
# much: rows, bodies and frames.
MAX_BYTES_UNDER_WAY = 8 * 1024 * 1024


class Emitter:
    """Serves its sources in turn.

    Under load one batch is being settled, by a thread of its own, and one is on its way while the next is claimed
    and published: Postgres works on both ends at once, and neither waits for the broker.
    """

    def __init__(
        self, sources: Sequence[Source[Any, Any]], sessions: Sequence[ClaimSession], wakeup: Wakeup,
        publisher: EventPublisher, *, batch_size: int, poll: float,
    ) -> None:
        self._watches = {source.kind: PollSchedule(source, poll) for source in sources}
        self._free = list(sessions)
        for session in sessions:
            session.before_waiting = self.settle
        self._wakeup = wakeup
        self._publisher = publisher
        self._batch_size = batch_size
        self._in_flight: list[Batch[Any, Any]] = []
        self._stalled: list[Batch[Any, Any]] = []  # the broker has not confirmed them in the usual time
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="settling")
        self._settling: tuple[Batch[Any, Any], Future[datetime | None]] | None = None
        self._renew_channel = False

    def run_once(self) -> None:
        """Emit a batch of each source that may have something due; unless there is more, sleep until there is."""
        started = time.monotonic()
        emitted_batches = [self._emit(watch) for watch in self._watches.values() if watch.next_look <= started]
        batches = [batch for batch in emitted_batches if batch is not None]
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
        wake_at = min(watch.next_look for watch in self._watches.values())
        seconds = max(wake_at, started + REST_SECONDS if emitted else 0.0) - time.monotonic()
        self._listen(min(seconds, RECHECK_SECONDS) if self._stalled else seconds)

    def _emit(self, watch: PollSchedule) -> Batch[Any, Any] | None:
        """Claim and publish, and only then settle the batch before: beside the next claim, where there is one.

        None if another session's lock on a table would keep the batch from being settled.
        """
        if not self._free or sum(each.size for each in self._under_way) > MAX_BYTES_UNDER_WAY:
            self.settle()
        try:
            batch = Batch.claimed(watch.source, self._free[0], self._batch_size, watch.watermark.bounds())
        except LockTimeout as error:
            if watch.locked() > _WARN_AFTER_SECONDS:
                _locked.warning(kind=watch.source.kind, pids=self._free[0].lock_holders(), problem=str(error),
                                do="find the transaction in pg_stat_activity by its pid, and end it")
            return None
        del self._free[0]
        watch.claimed(batch)
        batch.publish(self._publisher)
        before = list(self._in_flight)
        self._in_flight.append(batch)
        # What is urgent is kept waiting neither behind the settlement of what is not, nor behind the next claim.
        for each in (batch, *before) if batch.urgent else before:
            if batch.full and not batch.urgent:
                self._settle_beside(each)
            else:
                self._settle_or_defer(each)
        return batch

    @property
    def _under_way(self) -> list[Batch[Any, Any]]:
        return [*self._in_flight, *self._stalled, *([self._settling[0]] if self._settling is not None else [])]

    def settle(self) -> None:
        """Settle what is on its way, if anything is."""
        self._finish_settling()
        for batch in [*self._stalled, *self._in_flight]:
            self._settle(batch)

    def close(self) -> None:
        """Let go of the thread."""
        self._beside.shutdown(wait=False)

    def _settle(self, batch: Batch[Any, Any]) -> None:
        (self._stalled if batch in self._stalled else self._in_flight).remove(batch)
        self._settled(batch, batch.settle())

    def _settle_or_defer(self, batch: Batch[Any, Any]) -> None:
        """Settle a batch, or go on without it while its confirms are overdue and a session is free.

        The confirms of the next batches tell whether the whole broker is slow or only the queues of some routes.
        """
        if not self._free or batch.confirmed():
            self._settle(batch)
            return
        self._in_flight.remove(batch)
        self._stalled.append(batch)
        self._watches[batch.source.kind].deferred(batch)

    def _settle_stalled(self) -> None:
        for batch in list(self._stalled):
            if batch.confirmed():
                self._settle(batch)

    def _settle_beside(self, batch: Batch[Any, Any]) -> None:
        self._finish_settling()
        self._in_flight.remove(batch)
        self._settling = batch, self._beside.submit(batch.settle)

    def _finish_settling(self) -> None:
        """Wait for the batch that is being settled beside all else, if one is."""
        if self._settling is not None:
            (batch, settled), self._settling = self._settling, None
            self._settled(batch, settled.result())

    def _settled(self, batch: Batch[Any, Any], due_again: datetime | None) -> None:
        self._free.append(batch.session)
        self._renew_channel = self._renew_channel or batch.renew_channel
        self._watches[batch.source.kind].settled(batch, due_again)

    def _listen(self, seconds: float) -> None:
        """Hear what consumers say, for so long; who never listens is hung up on by the database in the end."""
        for kind, moment in self._wakeup.wait(seconds).items():
            for watch in self._watches.values():
                if kind in (watch.source.kind, None):
                    watch.told(moment)
