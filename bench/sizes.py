"""One kind of row at one size: loaded, and measured by the sidecar's own code."""

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any, ClassVar

from bench.servers import Bed
from scheduler.commands.store_batches import Execute, StoreSession
from scheduler.dev.servers import Stack
from scheduler.postgres.claims import Claim, ClaimSession
from scheduler.postgres.connection import Connection, connect

CLAIM, STORE, VACUUM = "claim + settle a row", "store a row", "vacuum, per changed row"
SCATTERED = "claim + settle a row at a random position"
ARCHIVE, PRUNE, CANCEL = "claim + move a row to the history", "prune a row", "cancel a row"
FIRST, LAST, FIND = "first page", "last page", "find one"
WHOLE_VACUUM, TABLE, INDEXES = "first vacuum, per row", "table, per row", "indexes, per row"
WAL = "WAL to "  # and then what
PAGE = 50
CLAIMED, STORED = 500, 1000  # in a batch, as the producer and the consumer take them
CLAIMS, STORES, PRUNES = 20, 10, 3  # batches in a turn
DUE = CLAIMS * CLAIMED


class Sized(ABC):
    """So many rows of one kind in a database of their own."""

    kind: ClassVar[str]
    table: ClassVar[str]

    def __init__(self, stack: Stack, count: int, rounds: int) -> None:
        """Load them, with what so many rounds need."""
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
        """Return after which row the last page begins."""

    @abstractmethod
    def turn(self) -> dict[str, float]:
        """Measure everything once."""

    def close(self) -> None:
        self.bed.close()

    def vacuum(self, table: str, rows: int) -> float:
        """Return the microseconds a row of a vacuum; Postgres decides what it does with the indexes."""
        taken = timed(lambda: self.bed.sql(f"VACUUM {table}")) / rows * 1e6
        self.bed.sql("CHECKPOINT")
        return taken

    def _bytes(self) -> dict[str, float]:
        [(table, indexes)] = self.bed.sql(
            "SELECT sum(pg_table_size(oid)), sum(pg_indexes_size(oid)) FROM pg_class WHERE relkind = 'r' AND oid IN "
            "(SELECT relid FROM pg_partition_tree(%s::regclass) UNION ALL SELECT %s::regclass)", (self.table,) * 2)
        return {TABLE: float(table) / self.count, INDEXES: float(indexes) / self.count}

    def claimed(
        self, what: str, claim: Callable[..., Claim[Any]], settle: Callable[[ClaimSession, Claim[Any]], None],
        bound: Sequence[datetime],
    ) -> dict[str, float]:
        """Return the microseconds a row of the producer's transaction, and the bytes that it logs."""
        session, taken, logged = ClaimSession(self.bed.database_url, "bench"), [], self._logged()
        for _ in range(CLAIMS):
            started = time.perf_counter()
            found = claim(session, CLAIMED, bound)
            assert len(found.things) == CLAIMED
            settle(session, found)
            taken.append((time.perf_counter() - started) / len(found.things))
            bound = found.resume_from
        session.close()
        # Without the first, in a new session.
        return {what: statistics.median(taken[2:]) * 1e6, WAL + what: (self._logged() - logged) / DUE}

    def _logged(self) -> float:
        return float(self.bed.sql("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])

    def stored(self, how: Execute, batches: Sequence[list[Any]]) -> dict[str, float]:
        """Return the microseconds a message of the consumer's transaction, and the bytes that it logs."""
        session, logged = StoreSession(self.bed.database_url, how), self._logged()
        taken = [timed(lambda some=some: session.execute(some, timedelta(seconds=1))) / len(some) for some in batches]
        session.close()
        return {STORE: statistics.median(taken[1:]) * 1e6,
                WAL + STORE: (self._logged() - logged) / sum(map(len, batches))}

    def listed(self, page: Callable[[Connection, Any], list[Any]]) -> dict[str, float]:
        """Return the milliseconds of the first page and of the last."""
        with closing(self.reader()) as connection:
            return {name: repeated(lambda after=after: page(connection, after)) * 1e3
                    for name, after in ((FIRST, None), (LAST, self.last))}

    def reader(self) -> Connection:
        """Connect as the API does to look through rows, but without its limit of five seconds."""
        connection = connect(self.bed.database_url, "bench", statement_timeout="0", default_transaction_read_only="on")
        connection.autocommit = True
        return connection


def unit(what: str) -> str:
    """Return what a figure is measured in."""
    if what.startswith(WAL) or what in (TABLE, INDEXES):
        return " bytes"
    return " ms" if what in (FIRST, LAST, FIND) else " µs"


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def repeated(work: Callable[[], Any], seconds: float = 1.0) -> float:
    """Return the median of as many as fit into a second, three at least; the first is left out."""
    assert work()
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while len(taken) < 3 or (time.perf_counter() < until and len(taken) < 50):
        taken.append(timed(work))
    return statistics.median(taken)
