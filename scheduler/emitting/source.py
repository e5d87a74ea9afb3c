"""What the emitting loop asks of each kind of thing that falls due: a new kind is one more source."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from scheduler.domain.instants import rfc3339
from scheduler.ops.trace_types import Traced
from scheduler.postgres.claims import Claim, ClaimSession
from scheduler.rabbit.frames import Publishable
from scheduler.rabbit.publisher import Receipt

Thing = TypeVar("Thing")
Emission = TypeVar("Emission")


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """When a batch was claimed, published and confirmed, by the database's clock."""

    claimed_at: datetime
    emitted_at: datetime
    confirmed_at: datetime


@dataclass(frozen=True, slots=True)
class EmissionTime:
    """When a batch goes out, by the database's clock, as messages say it: written once for all of them."""

    at: datetime
    text: str
    seconds: int

    @classmethod
    def of(cls, at: datetime) -> "EmissionTime":
        """Write a moment."""
        return cls(at, rfc3339(at), int(at.timestamp()))


# What a thing emitted, what the broker said of each of its messages, in order, and the last of that which is not a
# confirm, None if it confirmed them all.
EmissionResult = tuple[Emission, Sequence[Receipt], Receipt | None]


class Source(Protocol[Thing, Emission]):
    """One kind of thing that falls due. It keeps none between two batches, of which two may be on their way."""

    kind: str  # one word: of its claim, of its wake-ups, and in log lines
    tables: Sequence[str]  # that `settle` writes to
    classes: int  # of priority, each with a lower bound of its own
    # How long before it falls due a consumer tells of a thing, if that is longer than the poll interval.
    look_seconds: float | None
    # How long to leave it alone while there is nothing of its kind at all, if longer than the poll interval.
    idle_seconds: float

    def claim(self, session: ClaimSession, limit: int, since: Sequence[datetime]) -> Claim[Thing]:
        """Lock what is due, of each class the oldest first, and nothing of it that fell due before its `since`."""

    def decide(self, thing: Thing, now: datetime) -> Emission:
        """Say what a thing emits; whatever this raises concerns this one thing."""

    def messages(self, emission: Emission, stamp: EmissionTime) -> Sequence[Publishable]:
        """Return what to publish for it."""

    def follow_ups(
        self, results: Sequence[EmissionResult[Emission]], stamp: EmissionTime  # noqa: ARG002 - for those that have some
    ) -> Sequence[tuple[int, Publishable]]:
        """Return what to publish after the confirms of `messages`, each with the index of its result.

        By default nothing.
        """
        return ()

    def record(
        self, session: ClaimSession, emissions: Sequence[Emission], emitted_at: datetime  # noqa: ARG002 - as above
    ) -> None:
        """Store in the claim's transaction what must be known before publishing; by default nothing."""
        return

    def settle(
        self, session: ClaimSession, results: Sequence[EmissionResult[Emission]], unreadable: Sequence[Thing],
        times: BatchTimes
    ) -> datetime | None:
        """Write down what became of each, let go of them all, and return when the first of them is due again."""

    def report(self, results: Sequence[EmissionResult[Emission]], times: BatchTimes) -> None:
        """Count what was emitted and what failed, and show each at debug."""

    def traced(self, results: Sequence[EmissionResult[Emission]]) -> Sequence[Traced]:  # noqa: ARG002 - as above
        """Return those that belong to a trace of the host; by default none."""
        return ()

    def name(self, thing: Thing) -> str:
        """Return the id of a thing, for a log line."""

