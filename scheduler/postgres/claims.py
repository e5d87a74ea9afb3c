"""Due rows, claimed for as long as their transaction is open, and settled in it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from scheduler.domain.emission import DueJob
from scheduler.postgres.connection import Connection, connect, translated
from scheduler.resources import query

LONG_AGO = datetime.min.replace(tzinfo=UTC)
# The claim must walk its index whatever the statistics say just after a bulk load.
# One plan for all: to plan it anew took longer than to run it.
_CLAIM = query("claim_due") % {"floor": "$1", "limit": "$2"}
PLANNER = {"enable_bitmapscan": "off", "enable_sort": "off", "enable_seqscan": "off",
           "plan_cache_mode": "force_generic_plan"}


@dataclass(slots=True)
class Settlement:
    """What became of each claimed job, one list for each kind of outcome."""

    done: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)  # done as well, the last occurrence not emitted
    moved: list[tuple[str, datetime, int]] = field(default_factory=list)
    triggered: list[str] = field(default_factory=list)
    failed: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Claim:
    """The jobs that are due, locked; the database's time; and how long until the next falls due."""

    jobs: list[DueJob]
    claimed_at: datetime
    seconds_to_next: float | None


class Claims:
    """One connection, one open claim at a time."""

    def __init__(self, url: str, name: str) -> None:
        self._connection: Connection = connect(url, name, **PLANNER)
        # Transactions are begun and ended by hand, on the round trips of their first and last statements.
        self._connection.autocommit = True
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(f"PREPARE claim_due (timestamptz, bigint) AS {_CLAIM}")

    def claim(self, limit: int, floor: datetime = LONG_AGO) -> Claim:
        """Lock the oldest due jobs; where there are none, nothing stays open."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute("BEGIN; EXECUTE claim_due (%s, %s)", (floor, limit))
            rows = cursor.fetchall()
            *_, claimed_at, seconds = rows[0]
            jobs = [DueJob(*row[:-2]) for row in rows if row[0] is not None]
            if not jobs:
                cursor.execute("ROLLBACK")
            return Claim(jobs, claimed_at, seconds)

    def settle(self, outcome: Settlement) -> None:
        """Write down what became of the claimed jobs and let go of them."""
        with translated(), self._connection.cursor() as cursor:
            statements = [cursor.mogrify(query(name), values) for name, values in _updates(outcome)]
            cursor.execute(b";".join((*statements, b"COMMIT")))

    def release(self) -> None:
        """Let go of what is claimed, unchanged."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()


def _updates(outcome: Settlement) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the values of each statement that the outcome takes."""
    if outcome.done:
        yield "settle_done", {"ids": _array(outcome.done), "emitted": 1}
    if outcome.passed:
        yield "settle_done", {"ids": _array(outcome.passed), "emitted": 0}
    if outcome.moved:
        ids, following, emitted = zip(*outcome.moved, strict=True)
        yield "settle_next", {"ids": _array(ids), "following": _array([each.isoformat() for each in following]),
                              "emitted": _array(map(str, emitted))}
    if outcome.triggered:
        yield "settle_triggered", {"ids": _array(outcome.triggered)}
    if outcome.failed:
        ids, delays = zip(*outcome.failed, strict=True)
        yield "settle_failed", {"ids": _array(ids), "delays": _array(map(str, delays))}


def _array(values: Iterable[str]) -> str:
    """Write plain values as one literal: an array of so many parts takes Postgres longer to read than to use."""
    return f"{{{','.join(values)}}}"


def delay(retries: int, jitter: float) -> float:
    """Return the seconds before the next try: doubling from one second up to a minute, with jitter in 0…1."""
    span = min(2.0 ** min(retries, 10), 60.0)
    return span * (0.5 + 0.5 * jitter)
