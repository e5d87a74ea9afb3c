"""Claim due rows of any kind in a transaction, and settle them in it."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TextIO, TypeVar

from psycopg2 import errors

from scheduler.domain.errors import Unavailable
from scheduler.postgres.connection import Connection, connect, translated
from scheduler.resources import query

Thing = TypeVar("Thing")
Statement = tuple[str, dict[str, Any]]

LONG_AGO = datetime.min.replace(tzinfo=UTC)
# The claim must use its index even if statistics are outdated after a bulk load, with one generic plan.
PLANNER = {"enable_bitmapscan": "off", "enable_sort": "off", "enable_seqscan": "off",
           "plan_cache_mode": "force_generic_plan"}
# A connection that has fetched more than this is replaced after the settlement.
MAX_KEPT_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Claim(Generic[Thing]):
    """Locked due rows, the database's time, and the seconds until the next row is due."""

    things: list[Thing]
    claimed_at: datetime
    seconds_to_next: float | None
    resume_from: tuple[datetime, ...] = ()  # start of the next claim, by class
    full: bool = False  # there may be more
    urgent: bool = False  # a few of the highest class are among many others
    size: int = 0  # approximate bytes
    left_from: datetime | None = None  # due time of the first locked row that the claim has no room for


class ClaimSession:
    """One connection, one open claim at a time."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name
        self._open()
        self._fetched = 0  # approximate bytes of the present claim
        self.claimed_from = 0.0  # when the present claim was sent, by the monotonic clock
        # ctids of the claimed rows by id: locked rows cannot move, so that no second lookup is necessary.
        self.places: dict[str, str] = {}
        # Called before a statement that may wait for a row lock. It settles the other batches of this process, one
        # of which may hold the lock.
        self.before_waiting: Callable[[], None] = _do_nothing
        # The tables that settling writes to. A claim locks them first, to publish only what can be settled.
        self.tables: Sequence[str] = ()
        # Recent ratio of size to stored size of a table's large values (postgres/large_values.py).
        self.expansions: dict[str, float] = {}
        # Number of rows of a kind that recently fitted into a claim, if that was less than the limit.
        self.row_limits: dict[str, int] = {}

    def _open(self) -> None:
        self._connection: Connection = connect(self._url, self._name, **PLANNER)
        # BEGIN and COMMIT are sent with the first and last statement, to save round trips.
        self._connection.autocommit = True
        self._prepared: set[str] = set()

    def fetched(self, size: int) -> None:
        """Note the bytes of the present claim. libpq keeps a buffer of twice the longest row for a later one."""
        self._fetched = size

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
            self.claimed_from = time.monotonic()
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
        """Run a COPY in the claim's transaction; return False, without effect, if a row already exists."""
        with translated(), self._connection.cursor() as cursor:
            try:
                cursor.copy_expert(query("claims/copy", copy=statement), lines, size=1 << 20)
            except errors.UniqueViolation:
                cursor.execute(query("claims/rollback_copy"))
                return False
            return True

    def settle(self, statements: Sequence[Statement], after: Sequence[Statement] = ()) -> None:
        """Run the statements and commit, in one round trip.

        The statements of `after` run in the same round trip, in a later transaction that sees the commit.
        """
        with translated(), self._connection.cursor() as cursor:
            texts = [cursor.mogrify(text, values) for text, values in statements]
            later = [cursor.mogrify(text, values) for text, values in after]
            cursor.execute(b";".join((*texts, query("claims/commit").encode(), *later)))
        if self._fetched > MAX_KEPT_BYTES:
            # Not before the next claim: its start stands for the database's time.
            self._fetched = 0
            self._connection.close()
            with suppress(Unavailable):  # the next claim raises it
                self._open()

    def release(self) -> None:
        """Roll back, which releases the claimed rows unchanged."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(query("claims/rollback"))

    def close(self) -> None:
        self._connection.close()


def _do_nothing() -> None:
    """Default of `before_waiting`."""


def ctid_array(places: Mapping[str, str], ids: Iterable[str]) -> str:
    """Return the ctids of these rows as one array literal."""
    return '{"' + '","'.join([places[row_id] for row_id in ids]) + '"}'


def array(values: Iterable[str]) -> str:
    """Return values without special characters as one array literal, which Postgres parses fastest."""
    return f"{{{','.join(values)}}}"
