"""Claim due rows by priority class, with a reserved share for the lower classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, Protocol, TypeVar

from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession
from scheduler.postgres.large_values import MAX_CLAIM_BYTES, LargeValues, inline_limits

CLASSES = 3  # high, normal, low
_PLACE = -6  # index of the ctid in a row, before the values of the whole claim (claims/claim.sql)
FROM_THE_BOTTOM = (LONG_AGO,) * CLASSES
# Low rows are emitted in small batches, so that an urgent row waits for at most one of them.
LOW_AT_ONCE = 60
# A batch with a few urgent rows has few others, so that the broker confirms it quickly.
NORMAL_WITH_HIGH, LOW_WITH_HIGH = 60, 10


class DueItem(Protocol):
    """A row with a due time."""

    @property
    def wake_at(self) -> datetime | None:
        """The time at which a producer must process it."""


Thing = TypeVar("Thing", bound=DueItem)


class ClassShares(NamedTuple):
    """Maximum rows of each class in a batch; a tenth is reserved for each lower class."""

    high: int
    better: int  # high and normal together
    low: int
    low_alone: int  # if nothing else is due
    normal_beside: int
    low_beside: int
    # Maximum stored size of a value that the claim itself returns (large_values.py).
    compressed_inline: int
    inline: int

    @classmethod
    def of(cls, limit: int) -> "ClassShares":
        """Return the shares of a batch: `limit` rows for high and normal, and a ninth of that for low."""
        room = -(-limit // 9)
        better = max(limit, room + 1)
        low = max(room, min(LOW_AT_ONCE, limit))
        return cls(better - room, better, room, low, NORMAL_WITH_HIGH, LOW_WITH_HIGH, *inline_limits(limit))

    def urgent(self, highs: int) -> bool:
        """Return whether a few high rows must be emitted before all others."""
        return 0 < highs < self.high

    def normals(self, highs: int) -> int:
        """Return the maximum of normal rows, as computed by claims/claim.sql."""
        rest = self.better - highs
        return min(rest, self._beside(highs)) if self.urgent(highs) else rest

    def lows(self, highs: int, *, normal_waits: bool) -> int:
        """Return the maximum of low rows, as computed by claims/claim.sql."""
        if self.urgent(highs):
            return min(self.low, max(self.low_beside, (highs + self._beside(highs)) // 9 + 1))
        return self.low if highs or normal_waits else self.low_alone

    def _beside(self, highs: int) -> int:
        return max(self.normal_beside, highs // 8 + 1)


@dataclass(frozen=True, slots=True)
class ClassedClaim(Generic[Thing]):
    """The claim of one kind of rows by claims/claim.sql."""

    kind: str
    statement: str
    read: Callable[..., Thing]
    large: LargeValues
    placed: bool = False  # whether the last selected column is the ctid

    def claim(
        self, session: ClaimSession, limit: int, since: Sequence[datetime] = FROM_THE_BOTTOM
    ) -> Claim[Thing]:
        """Lock due rows, higher classes first; if there are none, end the transaction."""
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
            without_room = [len(some) < len(all_) for some, all_ in zip(kept, classes, strict=True)]
            left = [more or cut for more, cut in zip(left, without_room, strict=True)]
            highs, normals, lows = map(len, kept)
            rows = [row for class_rows in kept for row in class_rows]
        self._adapt_row_limit(session, len(rows), locked, limit)
        things = [self.read(row) for row in rows]
        if self.placed:
            session.places = {row[0]: row[_PLACE] for row in rows}
        if not things:
            session.release()
        ends = (highs, highs + normals, len(things))
        # If no due row of a class is left, its next scan starts at the time of this claim.
        resume_from = tuple(
            things[end - 1].wake_at if more else claimed_at for end, more in zip(ends, left, strict=True)
        )
        left_from = min((at for at, cut in zip(resume_from, without_room, strict=True) if cut), default=None)
        return Claim(things, claimed_at, seconds_to_next, resume_from, any(left), urgent, size, left_from)

    def _adapt_row_limit(self, session: ClaimSession, kept: int, locked: int, limit: int) -> None:
        """Limit the next claim to little more than fits, and leave other rows to other replicas."""
        if kept < locked:
            session.row_limits[self.kind] = max(2, kept * 2)
        elif self.kind in session.row_limits and kept >= limit:
            session.row_limits[self.kind] = limit * 2
