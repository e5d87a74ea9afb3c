"""Claims by class of priority: who goes first, and how much of a batch is kept for the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, Protocol, TypeVar

from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession
from scheduler.postgres.large_values import MAX_CLAIM_BYTES, LargeValues, inline_limits

CLASSES = 3  # high, normal, low
_PLACE = -6  # before what claims/claim.sql says of the claim as a whole
FROM_THE_BOTTOM = (LONG_AGO,) * CLASSES
# What is not urgent goes out by small batches: what is urgent and falls due meanwhile waits for one at most.
LOW_AT_ONCE = 60
# Beside a few that are urgent there are fewer still of the others, so that the broker has soon confirmed them all.
NORMAL_BESIDE, LOW_BESIDE = 60, 10


class DueItem(Protocol):
    """Something that falls due."""

    @property
    def wake_at(self) -> datetime | None:
        """When it does."""


Thing = TypeVar("Thing", bound=DueItem)


class ClassShares(NamedTuple):
    """How many of each class a batch may have: what comes after has a tenth of it for certain."""

    high: int
    better: int  # high and normal together
    low: int
    low_alone: int  # where nothing else is due
    normal_beside: int
    low_beside: int
    # Up to which stored size a value is returned by the claim itself: large_values.py.
    compressed_inline: int
    inline: int

    @classmethod
    def of(cls, limit: int) -> "ClassShares":
        """Share a batch: `limit` for the better classes, and beside it a ninth of that for the last."""
        room = -(-limit // 9)
        better = max(limit, room + 1)
        return cls(better - room, better, room, max(room, min(LOW_AT_ONCE, limit)), NORMAL_BESIDE, LOW_BESIDE,
                   *inline_limits(limit))

    def urgent(self, highs: int) -> bool:
        """Whether a few of the best class are to be out before all else."""
        return 0 < highs < self.high

    def normals(self, highs: int) -> int:
        """Return how many of the second class there may be, as claims/claim.sql reckons it."""
        rest = self.better - highs
        return min(rest, self._beside(highs)) if self.urgent(highs) else rest

    def lows(self, highs: int, *, normal_waits: bool) -> int:
        """Return how many of the last class there may be, as claims/claim.sql reckons it."""
        if self.urgent(highs):
            return min(self.low, max(self.low_beside, (highs + self._beside(highs)) // 9 + 1))
        return self.low if highs or normal_waits else self.low_alone

    def _beside(self, highs: int) -> int:
        return max(self.normal_beside, highs // 8 + 1)


@dataclass(frozen=True, slots=True)
class ClassedClaim(Generic[Thing]):
    """The claim of one kind of thing, by claims/claim.sql."""

    kind: str
    statement: str
    read: Callable[..., Thing]
    large: LargeValues
    placed: bool = False  # whether the last of what is selected says where a row lies

    def claim(
        self, session: ClaimSession, limit: int, since: Sequence[datetime] = FROM_THE_BOTTOM
    ) -> Claim[Thing]:
        """Lock what is due, the better classes first; where there is nothing, nothing stays open."""
        limit = min(limit, session.row_limits.get(self.kind, limit))
        shares = ClassShares.of(limit)
        rows = session.claim(self.kind, self.statement, *since, *shares)
        *_, claimed_at, seconds_to_next, highs, lows, normal_waits = rows.pop()
        normals = len(rows) - highs - lows
        left = [highs >= shares.high, normals >= shares.normals(highs),
                lows >= shares.lows(highs, normal_waits=normal_waits)]
        urgent, size = shares.urgent(highs), self.large.inline_size(rows)
        locked, without_room = len(rows), [False] * CLASSES
        if size is None or size > MAX_CLAIM_BYTES:
            classes = (rows[:highs], rows[highs : highs + normals], rows[highs + normals :])
            kept, size = self.large.fetch(session, classes)
            without_room = [len(each) < len(all_) for each, all_ in zip(kept, classes, strict=True)]
            left = [more or cut for more, cut in zip(left, without_room, strict=True)]
            highs, normals, lows = map(len, kept)
            rows = [row for each in kept for row in each]
        self._adapt_row_limit(session, len(rows), locked, limit)
        things = [self.read(row) for row in rows]
        if self.placed:
            session.places = {row[0]: row[_PLACE] for row in rows}
        if not things:
            session.release()
        ends = (highs, highs + normals, len(things))
        # Where nothing is left of a class, the next scan for it begins with what falls due from now on.
        resume_from = tuple(
            things[end - 1].wake_at if more else claimed_at for end, more in zip(ends, left, strict=True)
        )
        left_from = min((at for at, cut in zip(resume_from, without_room, strict=True) if cut), default=None)
        return Claim(things, claimed_at, seconds_to_next, resume_from, any(left), urgent, size, left_from)

    def _adapt_row_limit(self, session: ClaimSession, kept: int, locked: int, limit: int) -> None:
        """Have the next claim lock few more rows than it has room for: others can have those."""
        if kept < locked:
            session.row_limits[self.kind] = max(2, kept * 2)
        elif self.kind in session.row_limits and kept >= limit:
            session.row_limits[self.kind] = limit * 2
