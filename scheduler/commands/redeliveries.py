"""Dead-letter messages that crash the consumer each time, and no others.

Quorum queues count deliveries in x-delivery-count, but the count also grows when the connection is lost over
another message. Therefore a message that was delivered SUSPECT times is handled alone, and only rejected if that
fails ALONE_LIMIT times. Classic queues only say that there was an earlier delivery, so the consumer counts all
redeliveries. Counts are committed before the message is parsed, and deleted when it has been handled.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from scheduler.commands.store_batches import BatchStore, StoreSession
from scheduler.domain.errors import Problem, Reason, Rejected, Unavailable
from scheduler.postgres.connection import Connection, transaction
from scheduler.postgres.duplicates import count_redeliveries, forget_redeliveries
from scheduler.rabbit.batch_consumer import SUSPECT, BatchConsumer
from scheduler.rabbit.dead_letter import fingerprint
from scheduler.rabbit.delivery_parser import Delivery, as_bytes
from scheduler.rabbit.topology import DELIVERY_LIMIT

ALONE_LIMIT = 5  # it must be reached before the queue's own delivery limit
UNREAD = object()  # stands for the content of a message that is not parsed yet


class _Message(NamedTuple):
    name: str
    handled: bool = False


class Redeliveries:
    """Defers the parsing of redelivered messages until they are counted, and of suspects until they are alone."""

    def __init__(
        self, database_url: str, store: BatchStore, read: Callable[[Delivery], Any], *, queue_may_count: bool
    ) -> None:
        """Parse with `read`; unless `queue_may_count`, an x-delivery-count comes from the publisher."""
        self._session = StoreSession(database_url, _execute)
        self._store = store
        self._read = read
        self._queue_may_count = queue_may_count
        self._deferred = False  # whether the parsing of any message was deferred

    def read(self, delivery: Delivery) -> Any:
        """Parse a message, unless it must be counted first."""
        if not delivery.redelivered or (self._counted_by_queue(delivery) and not _is_suspect(delivery)):
            return self._read(delivery)
        self._deferred = True  # on the I/O thread, before the message is passed on
        return UNREAD

    def _counted_by_queue(self, delivery: Delivery) -> bool:
        return self._queue_may_count and delivery.counted_by_queue

    def next_batch(
        self, batch: list[Delivery], inbox: BatchConsumer, check_broker: Callable[[], None]
    ) -> list[Delivery] | None:
        """Return the first messages of a batch, or a suspect alone, and put the others back.

        A suspect is not parsed yet. Returns None on a stop; raises DatabaseUnavailable.
        """
        if not self._deferred or not any(delivery.read is UNREAD for delivery in batch):
            return batch
        uncounted = [
            delivery for delivery in batch
            if delivery.read is UNREAD and not delivery.redeliveries and not self._counted_by_queue(delivery)
        ]
        counts = self._count(uncounted, check_broker)
        if counts is None:
            return None
        for delivery, count in zip(uncounted, counts, strict=True):
            delivery.redeliveries = count
            if not _is_suspect(delivery):
                delivery.read = self._read(delivery)
        suspect = next((at for at, delivery in enumerate(batch) if delivery.read is UNREAD), len(batch))
        size = max(suspect, 1)
        inbox.unget(batch[size:])
        return batch[:size]

    def parse_suspect(self, delivery: Delivery, check_broker: Callable[[], None]) -> bool:
        """Parse a message that is handled alone, or reject it; return False on a stop."""
        if delivery.redeliveries:
            limit_reached = delivery.redeliveries >= DELIVERY_LIMIT - 1
        else:
            counts = self._count([delivery], check_broker)
            if counts is None:
                return False
            [delivery.alone] = counts
            limit_reached = delivery.alone > ALONE_LIMIT
        if limit_reached:
            problem = (f"was delivered {delivery.deliveries_before + 1} times and never acknowledged: handling it "
                       "crashes the consumer, even alone")
            delivery.read = Rejected([Problem("body", problem)], Reason.REDELIVERED)
        else:
            delivery.read = self._read(delivery)
        return True

    def _count(self, deliveries: Sequence[Delivery], check_broker: Callable[[], None]) -> Sequence[int] | None:
        if not deliveries:
            return ()
        messages = [_Message(_name(delivery)) for delivery in deliveries]
        stored = self._store.store(self._session, messages, check_broker)
        return None if stored is None else stored.outcomes

    def forget(self, batch: Sequence[Delivery]) -> None:
        """Delete the counts of handled messages; counts that cannot be deleted now are pruned later."""
        if not self._deferred:
            return
        counted = [delivery for delivery in batch if delivery.redeliveries or delivery.alone]
        handled = [_Message(_name(delivery), handled=True) for delivery in counted]
        if handled:
            try:
                self._session.execute(handled, timedelta(0))
            except Unavailable:
                self._session.close()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


def _is_suspect(delivery: Delivery) -> bool:
    return delivery.deliveries_before >= SUSPECT


def _name(delivery: Delivery) -> str:
    return fingerprint(as_bytes(delivery.routing_key), delivery.raw, delivery.body)


def _execute(connection: Connection, batch: Sequence[_Message], _: timedelta) -> list[int]:
    handled = [message.name for message in batch if message.handled]
    redelivered = [message.name for message in batch if not message.handled]
    with transaction(connection) as cursor:
        if handled:
            forget_redeliveries(cursor, handled)
        counts = count_redeliveries(cursor, redelivered) if redelivered else {}
    return [counts[name] for name in redelivered]
