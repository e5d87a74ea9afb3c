"""Due rows of any kind, claimed for as long as their transaction is open, and settled in it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TextIO, TypeVar

from psycopg2 import errors

from scheduler.postgres.connection import Connection, connect, translated
from scheduler.resources import query

Thing = TypeVar("Thing")
Statement = tuple[str, dict[str, Any]]

LONG_AGO = datetime.min.replace(tzinfo=UTC)
# The claim must walk its index whatever the statistics say just after a bulk load, by one plan for all.
PLANNER = {"enable_bitmapscan": "off", "enable_sort": "off", "enable_seqscan": "off",
           "plan_cache_mode": "force_generic_plan"}


@dataclass(frozen=True, slots=True)
class Claim(Generic[Thing]):
    """What is due, locked; the database's time; and how long until the next falls due."""

    things: list[Thing]
    claimed_at: datetime
    seconds_to_next: float | None
    resume_from: tuple[datetime, ...] = ()  # where the next claim may begin, for each class
    full: bool = False  # there may be more
    urgent: bool = False  # a few of the best class are among many others
    size: int = 0  # about how many bytes the things hold
    left_from: datetime | None = None  # others are locked that it has no room for: they fell due from here on


class ClaimSession:
    """One connection, one open claim at a time."""

    def __init__(self, url: str, name: str) -> None:
        self._connection: Connection = connect(url, name, **PLANNER)
        # Transactions are begun and ended by hand, on the round trips of their first and last statements.
        self._connection.autocommit = True
        self._prepared: set[str] = set()
        # Where the claimed rows lie, by their ids: locked, they cannot move, and need not be looked up again.
        self.places: dict[str, str] = {}
        # Called before a statement that may wait for a row lock. It settles the other batches of this process: one
        # of them may hold the lock.
        self.before_waiting: Callable[[], None] = _do_nothing
        # The tables that settling writes to. A claim locks them first: what cannot be settled is not published.
        self.tables: Sequence[str] = ()
        # How much larger than stored the large values of a table were, of late (postgres/large_values.py).
        self.expansions: dict[str, float] = {}
        # How many rows of a kind fit into a claim, of late, where that is less than it may have.
        self.row_limits: dict[str, int] = {}

    def claim(self, kind: str, statement: str, *values: datetime | int) -> list[tuple[Any, ...]]:
        """Run a kind's claim with its values, $1 first, in a transaction that stays open.

        Raises LockTimeout, with nothing open, if another session has locked one of `tables`.
        """
        lock = query("claims/lock", tables=", ONLY ".join(self.tables)) if self.tables else ""
        text = query("claims/execute", kind=kind, lock=lock, values=", ".join(["%s"] * len(values)))
        with translated(), self._connection.cursor() as cursor:
            if kind not in self._prepared:
                cursor.execute(query("claims/prepare", kind=kind, claim=statement))
                self._prepared.add(kind)
            try:
                cursor.execute(text, values)
            except errors.LockNotAvailable:
                cursor.execute(query("claims/rollback"))
                raise
            return cursor.fetchall()

    def lock_holders(self) -> list[int]:
        """Return the process ids of the sessions that have locked `tables` against writing, or wait to."""
        return [pid for pid, in self.query(query("claims/lock_holders"), {"tables": array(self.tables)})]

    def query(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement in the claim's transaction and return its rows, if it has any."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def copy(self, statement: str, lines: TextIO) -> bool:
        """Run a COPY in the claim's transaction; False, and nothing done, if one of the rows is there already."""
        with translated(), self._connection.cursor() as cursor:
            try:
                cursor.copy_expert(query("claims/copy", copy=statement), lines, size=1 << 20)
            except errors.UniqueViolation:
                cursor.execute(query("claims/rollback_copy"))
                return False
            return True

    def settle(self, statements: Sequence[Statement], after: Sequence[Statement] = ()) -> None:
        """Run the statements on what is claimed, each with its values, and let go of it: one round trip.

        The statements of `after` run on the same round trip, in a transaction of their own that sees the commit.
        """
        with translated(), self._connection.cursor() as cursor:
            texts = [cursor.mogrify(text, values) for text, values in statements]
            later = [cursor.mogrify(text, values) for text, values in after]
            cursor.execute(b";".join((*texts, query("claims/commit").encode(), *later)))

    def release(self) -> None:
        """Let go of what is claimed, unchanged."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(query("claims/rollback"))

    def close(self) -> None:
        self._connection.close()


def _do_nothing() -> None:
    """No other batch of this process can be in the way."""


def place_array(places: Mapping[str, str], ids: Iterable[str]) -> str:
    """Write where these rows lie as one literal."""
    return '{"' + '","'.join([places[each] for each in ids]) + '"}'


def array(values: Iterable[str]) -> str:
    """Write plain values as one literal: an array of so many parts takes Postgres longer to read than to use."""
    return f"{{{','.join(values)}}}"
