"""Count redeliveries of messages from classic queues, so that a message cannot crash the consumer forever.

A quorum queue counts deliveries in x-delivery-count; a classic queue only sets the redelivered flag. So the count
is committed before such a message is parsed, and deleted when it has been handled.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from scheduler.commands.store_batches import BatchStore, StoreSession
from scheduler.domain.errors import Unavailable
from scheduler.postgres.connection import Connection, transaction
from scheduler.postgres.duplicates import count_redeliveries, digest, forget_redeliveries
from scheduler.rabbit.delivery_parser import Delivery, as_bytes

UNREAD = object()  # Delivery.read of a message whose redelivery is not counted yet


class _Message(NamedTuple):
    name: str
    handled: bool = False


class Redeliveries:
    """Defers parsing of redelivered messages until their count is stored."""

    def __init__(
        self, database_url: str, store: BatchStore, read: Callable[[Delivery], Any], *, queue_may_count: bool
    ) -> None:
        """Parse with `read`. Unless `queue_may_count`, an x-delivery-count header was set by the publisher."""
        self._session = StoreSession(database_url, _execute)
        self._store = store
        self._read = read
        self._queue_may_count = queue_may_count

    def read(self, delivery: Delivery) -> Any:
        """Parse a message, or return UNREAD if its redelivery must be counted first."""
        if not delivery.redelivered or (self._queue_may_count and delivery.counted_by_queue):
            return self._read(delivery)
        return UNREAD

    def read_rest(self, batch: Sequence[Delivery], check_broker: Callable[[], None]) -> bool:
        """Count and parse the deferred messages; return False on a stop. Raises DatabaseUnavailable."""
        redelivered = [delivery for delivery in batch if delivery.read is UNREAD]
        if redelivered:
            messages = [_Message(_name(delivery)) for delivery in redelivered]
            stored = self._store.store(self._session, messages, check_broker)
            if stored is None:
                return False
            for delivery, count in zip(redelivered, stored.outcomes, strict=True):
                delivery.redeliveries = count
                delivery.read = self._read(delivery)
        return True

    def forget(self, batch: Sequence[Delivery]) -> None:
        """Delete the counts of handled messages; if the database is unavailable, they are pruned later."""
        handled = [_Message(_name(delivery), handled=True) for delivery in batch if delivery.redeliveries]
        if handled:
            try:
                self._session.execute(handled, timedelta(0))
            except Unavailable:
                self._session.close()

    def close(self) -> None:
        self._session.close()


def _name(delivery: Delivery) -> str:
    return digest(as_bytes(delivery.routing_key), delivery.raw, delivery.body)


def _execute(connection: Connection, batch: Sequence[_Message], _: timedelta) -> list[int]:
    handled = [message.name for message in batch if message.handled]
    redelivered = [message.name for message in batch if not message.handled]
    with transaction(connection) as cursor:
        if handled:
            forget_redeliveries(cursor, handled)
        counts = count_redeliveries(cursor, redelivered) if redelivered else {}
    return [counts[name] for name in redelivered]
