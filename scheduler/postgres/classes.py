"""Claims by class of priority: who goes first, and how much of a batch is kept for the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, Protocol, TypeVar

from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession

CLASSES = 3  # high, normal, low
FROM_THE_BOTTOM = (LONG_AGO,) * CLASSES
# What is not urgent goes out by small batches: what is urgent and falls due meanwhile waits for one at most.
LOW_AT_ONCE = 60


class Waking(Protocol):
    """Something that falls due."""

    @property
    def wake_at(self) -> datetime | None:
        """When it does."""


Thing = TypeVar("Thing", bound=Waking)


class Shares(NamedTuple):
    """How many of each class a batch may have: what comes after has a tenth of it for certain."""

    high: int
    better: int  # high and normal together
    low: int
    all: int

    @classmethod
    def of(cls, limit: int) -> "Shares":
        """Share a batch: `limit` for the better classes, and beside it a ninth of that for the last."""
        room = -(-limit // 9)
        better = max(limit, room + 1)
        return cls(better - room, better, max(room, min(LOW_AT_ONCE, limit)), better + room)


@dataclass(frozen=True, slots=True)
class ClassedClaim(Generic[Thing]):
    """The claim of one kind of thing, by claims/claim.sql."""

    kind: str
    statement: str
    read: Callable[..., Thing]

    def claim(
        self, session: ClaimSession, limit: int, since: Sequence[datetime] = FROM_THE_BOTTOM
    ) -> Claim[Thing]:
        """Lock what is due, the better classes first; where there is nothing, nothing stays open."""
        shares = Shares.of(limit)
        rows = session.claim(self.kind, self.statement, *since, *shares)
        *_, claimed_at, seconds_to_next, highs, normals = rows.pop()
        things = [self.read(row) for row in rows]
        if not things:
            session.release()
            return Claim([], claimed_at, seconds_to_next, (None,) * CLASSES)
        better, total = highs + normals, len(things)
        newest = tuple(
            things[end - 1].wake_at if end > begin else None
            for begin, end in ((0, highs), (highs, better), (better, total))
        )
        full = (
            highs >= shares.high or better >= shares.better
            or total - better >= min(shares.low, shares.all - better)
        )
        return Claim(things, claimed_at, seconds_to_next, newest, full, 0 < highs < shares.high)
