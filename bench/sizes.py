"""Load one kind of row at one size, and measure the sidecar's own code on it."""

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any, ClassVar

from bench.servers import Bed
from scheduler.commands.store_batches import ApplyBatch, StoreSession
from scheduler.dev.servers import Stack
from scheduler.postgres.claims import Claim, ClaimSession
from scheduler.postgres.connection import Connection, connect

CLAIM, STORE, VACUUM = "claim + settle a row", "store a row", "vacuum, per changed row"
SCATTERED = "claim + settle a row at a random position"
ARCHIVE, PRUNE, CANCEL = "claim + move a row to the history", "prune a row", "cancel a row"
FIRST, LAST, FIND = "first page", "last page", "find one"
WHOLE_VACUUM, TABLE, INDEXES = "first vacuum, per row", "table, per row", "indexes, per row"
WAL = "WAL to "  # followed by the operation
PAGE = 50
CLAIMED, STORED = 500, 1000  # per batch, as in the producer and the consumer
CLAIMS, STORES, PRUNES = 20, 10, 3  # batches per turn
DUE = CLAIMS * CLAIMED


class Sized(ABC):
    """Rows of one kind in a separate database."""

    kind: ClassVar[str]
    table: ClassVar[str]

    def __init__(self, stack: Stack, count: int, rounds: int) -> None:
        """Load the rows, with enough for `rounds`."""
        self.bed, self.count, self.rounds = Bed(stack), count, rounds
        started = time.perf_counter()
        self.load()
        self.once = {WHOLE_VACUUM: self.vacuum(self.table, count), **self._bytes()}
        self.bed.sql(f"ANALYZE {self.table}")
        self.last = self.last_page()
        self.bed.analyze()
        print(f"    {count:>12,} {self.kind:<16} loaded in {time.perf_counter() - started:.0f} s", flush=True)

    @abstractmethod
    def load(self) -> None:
        """Fill the table."""

    @abstractmethod
    def last_page(self) -> tuple[datetime, Any]:
        """Return the row before the last page."""

    @abstractmethod
    def turn(self) -> dict[str, float]:
        """Measure everything once."""

    def close(self) -> None:
        self.bed.close()

    def vacuum(self, table: str, rows: int) -> float:
        """Return the microseconds per row of a vacuum; Postgres decides about the indexes."""
        seconds = timed(lambda: self.bed.sql(f"VACUUM {table}")) / rows * 1e6
        self.bed.sql("CHECKPOINT")
        return seconds

    def _bytes(self) -> dict[str, float]:
        [(table, indexes)] = self.bed.sql(
            "SELECT sum(pg_table_size(oid)), sum(pg_indexes_size(oid)) FROM pg_class WHERE relkind = 'r' AND oid IN "
            "(SELECT relid FROM pg_partition_tree(%s::regclass) UNION ALL SELECT %s::regclass)", (self.table,) * 2)
        return {TABLE: float(table) / self.count, INDEXES: float(indexes) / self.count}

    def claimed(
        self, what: str, claim: Callable[..., Claim[Any]], settle: Callable[[ClaimSession, Claim[Any]], None],
        bound: Sequence[datetime],
    ) -> dict[str, float]:
        """Return the microseconds per row of the producer's transaction, and its WAL bytes."""
        session, seconds, logged = ClaimSession(self.bed.database_url, "bench"), [], self._logged()
        for _ in range(CLAIMS):
            started = time.perf_counter()
            claimed_rows = claim(session, CLAIMED, bound)
            assert len(claimed_rows.things) == CLAIMED
            settle(session, claimed_rows)
            seconds.append((time.perf_counter() - started) / len(claimed_rows.things))
            bound = claimed_rows.resume_from
        session.close()
        # Without the first one in a new session.
        return {what: statistics.median(seconds[2:]) * 1e6, WAL + what: (self._logged() - logged) / DUE}

    def _logged(self) -> float:
        return float(self.bed.sql("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])

    def stored(self, how: ApplyBatch, batches: Sequence[list[Any]]) -> dict[str, float]:
        """Return the microseconds per message of the consumer's transaction, and its WAL bytes."""
        session, logged = StoreSession(self.bed.database_url, how), self._logged()
        seconds = [timed(lambda some=some: session.execute(some, timedelta(seconds=1))) / len(some) for some in batches]
        session.close()
        return {STORE: statistics.median(seconds[1:]) * 1e6,
                WAL + STORE: (self._logged() - logged) / sum(map(len, batches))}

    def listed(self, page: Callable[[Connection, Any], list[Any]]) -> dict[str, float]:
        """Return the milliseconds of the first and the last page."""
        with closing(self.reader()) as connection:
            return {name: repeated(lambda after=after: page(connection, after)) * 1e3
                    for name, after in ((FIRST, None), (LAST, self.last))}

    def reader(self) -> Connection:
        """Connect like the API for lists, but without its limit of five seconds."""
        connection = connect(self.bed.database_url, "bench", statement_timeout="0", default_transaction_read_only="on")
        connection.autocommit = True
        return connection


def unit(what: str) -> str:
    """Return the unit of a figure."""
    if what.startswith(WAL) or what in (TABLE, INDEXES):
        return " bytes"
    return " ms" if what in (FIRST, LAST, FIND) else " µs"


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def repeated(work: Callable[[], Any], seconds: float = 1.0) -> float:
    """Return the median of the calls that fit into a second, at least three, without the first."""
    assert work()
    durations: list[float] = []
    until = time.perf_counter() + seconds
    while len(durations) < 3 or (time.perf_counter() < until and len(durations) < 50):
        durations.append(timed(work))
    return statistics.median(durations)
