"""Counts redeliveries of messages whose queue doesn't: a message that ends the consumer must not do so for ever.

A quorum queue counts deliveries in x-delivery-count; a classic queue only says that there was one before. So the
count is committed before such a message is read, and deleted when it has been handled.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from scheduler.commands.store_batches import BatchStore, StoreSession
from scheduler.domain.errors import Unavailable
from scheduler.postgres.connection import Connection, transaction
from scheduler.postgres.duplicates import count_redeliveries, digest, forget_redeliveries
from scheduler.rabbit.delivery_parser import Delivery, as_bytes

UNREAD = object()  # stands for what a delivery says until its redelivery is counted


class _Message(NamedTuple):
    name: str
    handled: bool = False


class Redeliveries:
    """Defers reading of redelivered messages until their count is stored."""

    def __init__(
        self, database_url: str, storing: BatchStore, read: Callable[[Delivery], Any], *, queue_may_count: bool
    ) -> None:
        """Defer with `read`; unless `queue_may_count`, an x-delivery-count is the publisher's own."""
        self._session = StoreSession(database_url, _execute)
        self._storing = storing
        self._read = read
        self._queue_may_count = queue_may_count

    def read(self, delivery: Delivery) -> Any:
        """Read a message, unless it was delivered before."""
        if not delivery.redelivered or (self._queue_may_count and delivery.counted_by_queue):
            return self._read(delivery)
        return UNREAD

    def read_rest(self, batch: Sequence[Delivery], check_broker: Callable[[], None]) -> bool:
        """Count and read what was deferred; False on a stop. Raises DatabaseUnavailable."""
        redelivered = [each for each in batch if each.read is UNREAD]
        if redelivered:
            messages = [_Message(_name(each)) for each in redelivered]
            stored = self._storing.store(self._session, messages, check_broker)
            if stored is None:
                return False
            for each, count in zip(redelivered, stored.verdicts, strict=True):
                each.redeliveries = count
                each.read = self._read(each)
        return True

    def forget(self, batch: Sequence[Delivery]) -> None:
        """Delete the counts of messages that were handled; those that can't be deleted now are pruned later."""
        handled = [_Message(_name(each), handled=True) for each in batch if each.redeliveries]
        if handled:
            try:
                self._session.execute(handled, timedelta(0))
            except Unavailable:
                self._session.close()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


def _name(delivery: Delivery) -> str:
    return digest(as_bytes(delivery.routing_key), delivery.raw, delivery.body)


def _execute(connection: Connection, batch: Sequence[_Message], _: timedelta) -> list[int]:
    handled = [each.name for each in batch if each.handled]
    redelivered = [each.name for each in batch if not each.handled]
    with transaction(connection) as cursor:
        if handled:
            forget_redeliveries(cursor, handled)
        counts = count_redeliveries(cursor, redelivered) if redelivered else {}
    return [counts[name] for name in redelivered]
