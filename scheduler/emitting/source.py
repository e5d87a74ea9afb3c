"""The interface between the emitting loop and a kind of due row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from scheduler.domain.instants import rfc3339
from scheduler.ops.trace_types import Traced
from scheduler.postgres.claims import Claim, ClaimSession
from scheduler.rabbit.frames import Publishable
from scheduler.rabbit.publisher import Receipt

Item = TypeVar("Item")
Emission = TypeVar("Emission")


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Times at which a batch was claimed, published and confirmed, by the database's clock."""

    claimed_at: datetime
    emitted_at: datetime
    confirmed_at: datetime


@dataclass(frozen=True, slots=True)
class EmissionTime:
    """Time at which a batch is emitted, by the database's clock, formatted once for all of its messages."""

    at: datetime
    text: str
    seconds: int

    @classmethod
    def of(cls, at: datetime) -> "EmissionTime":
        """Format an instant."""
        return cls(at, rfc3339(at), int(at.timestamp()))


# An emission, the receipts of its messages in order, and the last receipt that is not CONFIRMED (None if all are).
EmissionResult = tuple[Emission, Sequence[Receipt], Receipt | None]


class Source(Protocol[Item, Emission]):
    """A kind of row that falls due. It is stateless between batches; several may be in flight."""

    kind: str  # a word for its claims, its wake-ups and log lines
    tables: Sequence[str]  # that `settle` writes to
    classes: int  # priority classes, each with its own lower bound
    # How long in advance consumers announce a due row, if longer than the poll interval.
    notice_seconds: float | None
    # Poll interval while the table has no rows to wait for, if longer than the usual one.
    idle_seconds: float

    def claim(self, session: ClaimSession, limit: int, since: Sequence[datetime]) -> Claim[Item]:
        """Lock due rows, in each class the oldest first, starting at its `since`."""

    def decide(self, item: Item, now: datetime) -> Emission:
        """Decide the emission of a row. An exception affects only this row."""

    def messages(self, emission: Emission, stamp: EmissionTime) -> Sequence[Publishable]:
        """Return the messages of an emission."""

    def follow_ups(
        self, results: Sequence[EmissionResult[Emission]], stamp: EmissionTime  # noqa: ARG002 - for sources with follow-ups
    ) -> Sequence[tuple[int, Publishable]]:
        """Return messages to publish after the confirms of `messages`, each with the index of its result."""
        return ()

    def record(
        self, session: ClaimSession, emissions: Sequence[Emission], emitted_at: datetime  # noqa: ARG002 - as above
    ) -> None:
        """Store records that must exist before publishing, in the claim's transaction."""
        return

    def settle(
        self, session: ClaimSession, results: Sequence[EmissionResult[Emission]], unreadable: Sequence[Item],
        times: BatchTimes
    ) -> datetime | None:
        """Store the outcome of each row, release all rows, and return when the first is due again."""

    def report(self, results: Sequence[EmissionResult[Emission]], times: BatchTimes) -> None:
        """Count emissions and failures, and log each at debug level."""

    def traced(self, results: Sequence[EmissionResult[Emission]]) -> Sequence[Traced]:  # noqa: ARG002 - as above
        """Return the emissions that belong to a trace of the host."""
        return ()

    def name(self, item: Item) -> str:
        """Return the id of a row for log lines."""

