"""Messages whose rows another session has locked: which to set aside, retry and return to the queue."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from scheduler.commands.decide_commands import LOCKED, MessageOutcome
from scheduler.commands.set_aside import SetAside
from scheduler.commands.store_batches import StoredBatch, StoreSession
from scheduler.domain.errors import Rejected
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.consumer_timeout import ConsumerTimeout
from scheduler.rabbit.delivery_parser import Delivery

log = get_logger(__name__)
_locked = ThrottledWarning(log, "messages set aside: another session has locked their rows")

SKIP_LOCKED_SECONDS = 5.0


@dataclass(slots=True)
class PendingBatch:
    """Messages that are being stored by a session."""

    deliveries: list[Delivery]
    ids: set[str]
    session: StoreSession
    stored: Future[StoredBatch | None]
    waits_for_locks: bool
    calendars: bool  # it may store calendars, which requests in later batches use


class LockedMessages:
    """The messages of the current inbox that are set aside, and the batch of them that is being retried."""

    def __init__(self) -> None:
        self._set_aside = SetAside()
        self._consumer_timeout = ConsumerTimeout()
        self._skip_locked_until = 0.0  # a recent batch timed out waiting for a lock: the next ones do not wait
        self.retrying: PendingBatch | None = None

    def __bool__(self) -> bool:
        return bool(self._set_aside)

    @property
    def new_batches_wait(self) -> bool:
        """Whether a new batch waits for locks."""
        return time.monotonic() >= self._skip_locked_until

    @property
    def hold_seconds(self) -> float:
        """How long messages may be set aside, before the broker's consumer timeout."""
        return self._consumer_timeout.hold_seconds

    @property
    def must_return(self) -> bool:
        """Whether the messages must return to the queue."""
        return self._set_aside.held_seconds > self.hold_seconds

    def forget(self) -> None:
        """Forget the messages: their inbox has ended."""
        self._set_aside, self.retrying = SetAside(), None

    def learn_timeout(self, problem: str) -> None:
        """Learn the broker's consumer timeout from the error that ended the connection."""
        self._consumer_timeout.learn(problem, self._set_aside.held_seconds)

    def hold(self, deliveries: Sequence[Delivery]) -> None:
        """Set messages aside."""
        self._set_aside.add(deliveries)

    def behind(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Return the messages for the ids of messages set aside before, and the others."""
        ids = self._set_aside.ids
        behind: list[Delivery] = []
        rest: list[Delivery] = []
        for delivery in deliveries:
            is_behind = not isinstance(delivery.read, Rejected) and delivery.read.about in ids
            (behind if is_behind else rest).append(delivery)
        return behind, rest

    def split(
        self, batch: PendingBatch, stored: StoredBatch
    ) -> tuple[list[Delivery], Sequence[MessageOutcome], list[Delivery]]:
        """Return the stored or rejected messages, the outcomes of the readable ones, and the locked messages."""
        if not any(outcome is LOCKED for outcome in stored.outcomes):
            return batch.deliveries, stored.outcomes, []
        rest, locked, outcomes, stored_outcomes = [], [], [], iter(stored.outcomes)
        for delivery in batch.deliveries:
            if isinstance(delivery.read, Rejected):
                rest.append(delivery)
            elif (outcome := next(stored_outcomes)) is LOCKED:
                locked.append(delivery)
            else:
                rest.append(delivery)
                outcomes.append(outcome)
        if batch.waits_for_locks:
            self._skip_locked_until = time.monotonic() + SKIP_LOCKED_SECONDS
        _locked.warning(count=len(locked), id=locked[0].read.about,
                        do="if it persists, find the open transaction in pg_stat_activity")
        return rest, outcomes, locked

    def finish_retry(
        self, batch: PendingBatch, stored: StoredBatch
    ) -> tuple[list[Delivery], Sequence[MessageOutcome]]:
        """Return the messages of a retried batch that are stored or rejected, and keep the others."""
        self.retrying = None
        rest, outcomes, _ = self.split(batch, stored)
        self._set_aside.remove(rest)
        return rest, outcomes

    def next_batch(self, limit: int, *, one_id: bool) -> list[Delivery]:
        """Return messages to retry: of one id, or of as many ids as possible."""
        return self._set_aside.next_id(limit) if one_id else self._set_aside.next(limit)
