"""Delayed messages as received and as stored."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from scheduler.domain.delayed.delay import Delay

# An unroutable message is retried for this long, then dead-lettered.
UNROUTABLE_TIMEOUT = timedelta(hours=1)
# A cancel applies for this long to messages that arrive later.
TOMBSTONE_LIFETIME = timedelta(hours=1)
# Poll interval of producers, long because notifications announce messages that are due sooner.
IDLE_POLL_SECONDS = 5.0


class ReceiveOutcome(StrEnum):
    """Outcome for a received message."""

    WAITING = "waiting"
    DUPLICATE = "duplicate"  # the same UUID is already pending
    CANCELLED = "cancelled"  # its cancel arrived first


# Never changed once made, and not `frozen`: see jobs/definition.py.
@dataclass(slots=True)
class ReceivedMessage:
    """A message as received, with the properties to publish it with."""

    exchange: str  # to publish to: the exit that belongs to its entry
    routing_key: bytes
    delay: Delay
    message_id: str | None  # if it is a UUID, in Postgres's format
    properties: bytes  # AMQP encoding
    body: bytes

    @property
    def about(self) -> str:
        """Its UUID; empty without one."""
        return self.message_id or ""


@dataclass(slots=True)
class DelayedMessage:
    """A due message, or an expired cancel, which has no exchange."""

    id: int
    exchange: str | None
    routing_key: bytes
    properties: bytes
    body: bytes
    due_at: datetime
    wake_at: datetime
    retries: int = 0
    unroutable_at: datetime | None = None  # first unroutable publication
    problem: str | None = None

    def is_exhausted(self, now: datetime) -> bool:
        """Return whether its retries are exhausted."""
        return self.unroutable_at is not None and now - self.unroutable_at >= UNROUTABLE_TIMEOUT
