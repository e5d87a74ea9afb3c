"""The consumer's side of proving that all results were read; the producer's side is emitting/results_probe.py.

A producer publishes a marker to scheduler_results. The consumer that receives it records the marker after it has
committed all earlier deliveries. Every other consumer then confirms that it has committed all its deliveries so
far. Only when all have confirmed may an attempt without a timely report be ended.
"""

import time
from collections.abc import Sequence
from datetime import datetime
from uuid import uuid4

from scheduler.commands.store_batches import StoreSession
from scheduler.domain.errors import Unavailable
from scheduler.ops.logs import get_logger
from scheduler.postgres import result_readers
from scheduler.rabbit.batch_consumer import BatchConsumer

log = get_logger(__name__)

POLL_SECONDS = 0.5
BEAT_SECONDS = 5.0


class ResultReader:
    """A consumer of scheduler_results, registered in the database."""

    def __init__(self, session: StoreSession, silent_after: float, connected_at: datetime | None) -> None:
        """Register before the first delivery; raise Unavailable if the database cannot be reached."""
        self._id = str(uuid4())
        registered = result_readers.register(session.connection(), self._id, connected_at, silent_after)
        self.connected_at, self._clean_at = registered
        self._finished = 0  # deliveries that are committed
        self._returned = 0  # deliveries requeued, as last recorded for the producers
        self._confirming: tuple[datetime, int] | None = None  # clean at this time once this many are committed
        self._poll_at = 0.0
        self._beat_at = time.monotonic() + BEAT_SECONDS

    def finished(self, count: int) -> None:
        """Count deliveries that are committed."""
        self._finished += count

    def turn(self, session: StoreSession, inbox: BatchConsumer, *, committed: bool = True) -> None:
        """Confirm that this reader is clean if a producer waits for it; called on every turn of the loop.

        While results are set aside, `committed` is False and nothing is confirmed.
        """
        now = time.monotonic()
        if now < self._poll_at and self._confirming is None:
            return
        self._poll_at = now + POLL_SECONDS
        try:
            if committed:
                self._confirm(session, inbox)
            if now >= self._beat_at:
                self._beat_at = now + BEAT_SECONDS
                result_readers.beat(session.connection(), self._id)
        except Unavailable as error:
            session.close()
            log.debug("result reader not recorded", problem=str(error))

    def _confirm(self, session: StoreSession, inbox: BatchConsumer) -> None:
        if self._confirming is None:
            now = result_readers.find_marker(session.connection(), self._id, self._clean_at)
            if now is None:
                return
            # The broker replies after all earlier deliveries.
            self._confirming = now, inbox.count_delivered()
        clean_at, count = self._confirming
        if self._finished >= count:
            returned = inbox.returned
            result_readers.confirm_clean(
                session.connection(), self._id, clean_at, returned=returned > self._returned
            )
            self._confirming, self._clean_at, self._returned = None, clean_at, returned

    def read(self, session: StoreSession, inbox: BatchConsumer, markers: Sequence[str]) -> None:
        """Record markers; all earlier deliveries are committed."""
        try:
            returned = inbox.returned
            result_readers.record_markers(
                session.connection(), self._id, markers, returned=returned > self._returned
            )
            self._returned = returned
        except Unavailable as error:
            session.close()  # the producer sends another marker
            log.debug("marker not recorded", problem=str(error))

    def leave(self, session: StoreSession) -> None:
        """Unregister this reader, which has returned its uncommitted deliveries to the queue."""
        try:
            result_readers.remove(session.connection(), self._id)
        except Unavailable as error:
            session.close()  # its heartbeat expires
            log.debug("result reader not removed", problem=str(error))
