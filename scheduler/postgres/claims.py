"""Due rows, claimed for as long as their transaction is open, and settled in it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from scheduler.domain.emission import DueJob
from scheduler.postgres.connection import Connection, connect, roll_back, transaction, translated
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
        with transaction(self._connection) as cursor:
            cursor.execute(f"PREPARE claim_due (timestamptz, bigint) AS {_CLAIM}")

    def claim(self, limit: int, floor: datetime = LONG_AGO) -> Claim:
        """Lock the oldest due jobs; where there are none, nothing stays open."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute("EXECUTE claim_due (%s, %s)", (floor, limit))
            rows = cursor.fetchall()
            *_, claimed_at, seconds = rows[0]
            jobs = [DueJob(*row[:-2]) for row in rows if row[0] is not None]
            if not jobs:
                self._connection.rollback()
            return Claim(jobs, claimed_at, seconds)

    def settle(self, outcome: Settlement) -> None:
        """Write down what became of the claimed jobs and let go of them."""
        with translated(), self._connection.cursor() as cursor:
            for ids, emitted in ((outcome.done, 1), (outcome.passed, 0)):
                if ids:
                    cursor.execute(query("settle_done"), {"ids": ids, "emitted": emitted})
            if outcome.moved:
                moved, following, counts = zip(*outcome.moved, strict=True)
                cursor.execute(query("settle_next"), {
                    "ids": list(moved), "following": list(following), "emitted": list(counts),
                })
            if outcome.triggered:
                cursor.execute(query("settle_triggered"), {"ids": outcome.triggered})
            if outcome.failed:
                failed, delays = zip(*outcome.failed, strict=True)
                cursor.execute(query("settle_failed"), {"ids": list(failed), "delays": list(delays)})
            self._connection.commit()

    def release(self) -> None:
        """Let go of what is claimed, unchanged."""
        roll_back(self._connection)

    def close(self) -> None:
        self._connection.close()


def delay(retries: int, jitter: float) -> float:
    """Return the seconds before the next try: doubling from one second up to a minute, with jitter in 0…1."""
    span = min(2.0 ** min(retries, 10), 60.0)
    return span * (0.5 + 0.5 * jitter)
