"""A message on its way through us: as it arrives, as it waits, and what becomes of it when its time has come."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from scheduler.domain.delayed.delay import Delay

# What finds no queue is tried again for so long, and then given up.
UNROUTABLE_TIMEOUT = timedelta(hours=1)
# A cancel holds for so long against messages that come after it.
TOMBSTONE_LIFETIME = timedelta(hours=1)
# Producers look for delayed messages by themselves this often only, so that who uses none pays next to nothing;
# they are told of what falls due sooner.
IDLE_POLL_SECONDS = 5.0


class ReceiveOutcome(StrEnum):
    """What became of a message that arrived."""

    WAITING = "waiting"
    DUPLICATE = "duplicate"  # the same UUID waits already
    CANCELLED = "cancelled"  # its cancel came first


# Never changed once made, and not `frozen`: see jobs/definition.py.
@dataclass(slots=True)
class ReceivedMessage:
    """A message as it came, with the properties that it comes out with."""

    exchange: str  # where it comes out: the exit that belongs to its entry
    routing_key: bytes
    delay: Delay
    message_id: str | None  # where it is a UUID, as Postgres writes it
    properties: bytes  # as on the wire
    body: bytes

    @property
    def about(self) -> str:
        """Its UUID; all that have none are alike."""
        return self.message_id or ""


@dataclass(slots=True)
class DelayedMessage:
    """A message whose time has come, or a cancel whose hour is over: then it has no exchange."""

    id: int
    exchange: str | None
    routing_key: bytes
    properties: bytes
    body: bytes
    due_at: datetime
    wake_at: datetime
    retries: int = 0
    unroutable_at: datetime | None = None  # when it found no queue for the first time
    problem: str | None = None

    def given_up(self, now: datetime) -> bool:
        """Whether it has been tried for long enough."""
        return self.unroutable_at is not None and now - self.unroutable_at >= UNROUTABLE_TIMEOUT
