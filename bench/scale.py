"""Benchmark growing tables, and a claim while another client holds an old snapshot."""

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import psycopg2

from bench import plots, report
from bench.servers import Bed
from bench.sized_rows import KINDS
from bench.sizes import Sized, unit
from scheduler.dev.servers import Stack
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.jobs.due import JobSettlement, claim, settle
from scheduler.postgres.priority_classes import FROM_THE_BOTTOM

BATCH = 500
SIZES = (100_000, 1_000_000, 10_000_000)


def pinned(stack: Stack, churn: int, *, held: bool) -> float:
    """Churn rows, optionally with another client's open transaction, then measure claims."""
    with Bed(stack) as bed:
        bed.fill(churn + 40 * BATCH, "now() - interval '1 hour' + n * interval '1 millisecond'")
        bed.analyze()
        other = psycopg2.connect(bed.database_url)
        if held:
            other.set_session(isolation_level="REPEATABLE READ")
            with other.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM jobs")
        session = ClaimSession(bed.database_url, "churn")
        bound = FROM_THE_BOTTOM
        for _ in range(churn // BATCH):
            claimed = claim(session, BATCH, bound)
            done = [job.id for job in claimed.things]
            settle(session, JobSettlement(claimed.claimed_at, claimed.claimed_at, done=done))
            bound = claimed.resume_from
        # As in the producer: a scan from the start at every poll interval, the others from the floor.
        seconds = []
        for turn in range(40):
            started = time.perf_counter()
            claimed = claim(session, BATCH, FROM_THE_BOTTOM if turn % 10 == 0 else bound)
            done = [job.id for job in claimed.things]
            settle(session, JobSettlement(claimed.claimed_at, claimed.claimed_at, done=done))
            seconds.append((time.perf_counter() - started) / len(claimed.things) * 1e6)
            bound = claimed.resume_from
        session.close()
        other.close()
        return statistics.mean(seconds)


def measured(stack: Stack, kind: type[Sized], sizes: Sequence[int], rounds: int) -> dict[str, dict[int, float]]:
    """Return the median cost of each operation at each size, with all sizes in turn."""
    costs: dict[str, dict[int, list[float]]] = {}
    beds: list[Sized] = []
    try:
        beds.extend(kind(stack, size, rounds) for size in sizes)
        for _ in range(rounds):
            for bed in beds:
                for what, cost in (bed.turn() | bed.once).items():
                    costs.setdefault(what, {}).setdefault(bed.count, []).append(cost)
    finally:
        for bed in beds:
            bed.close()
    return {what: {size: statistics.median(costs) for size, costs in by_size.items()} for what, by_size in costs.items()}


def compared(kind: str, costs: dict[str, dict[int, float]]) -> list[report.Row]:
    """Return a row per operation: the largest size compared with the smallest, against logarithmic growth."""
    rows = []
    for what, by_size in costs.items():
        smallest, many = min(by_size), max(by_size)
        print(f"    {kind}: {what:<36}", *(f"{size:>12,}: {cost:,.4g}" for size, cost in by_size.items()), flush=True)
        rows.append(report.at_most(f"{kind}: {what}, {many:,} rows", by_size[many], by_size[smallest], f"{smallest:,} rows",
                                   round(math.log(many) / math.log(smallest), 2), unit(what)))
    return rows


@contextmanager
def vacuum_by_hand(stack: Stack) -> Iterator[None]:
    """Disable autovacuum: vacuum is measured separately."""
    with closing(psycopg2.connect(stack.database_url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("ALTER SYSTEM SET autovacuum = off")
        cursor.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            cursor.execute("ALTER SYSTEM RESET autovacuum")
            cursor.execute("SELECT pg_reload_conf()")


def by_size(stack: Stack, sizes: Sequence[int], rounds: int) -> list[report.Row]:
    """Measure all kinds at all sizes, store every figure, and return the fastest-growing cost of each kind."""
    costs: dict[str, dict[str, dict[int, float]]] = {}
    rows: list[report.Row] = []
    worst: list[report.Row] = []
    with vacuum_by_hand(stack):
        for kind in KINDS:
            costs[kind.kind] = measured(stack, kind, sizes, rounds)
            of_kind = compared(kind.kind, costs[kind.kind])
            rows += of_kind
            worst.append(max(of_kind, key=lambda row: row.ratio or 0.0))
    report.write("sizes" if max(sizes) <= max(SIZES) else "sizes-beyond", rows, costs)
    plots.scale([report.details(part) for part in ("sizes", "sizes-beyond")])
    return [report.Row(f"fastest growth: {row.what}", row.ours, row.yardstick, row.ratio, row.goal, row.met)
            for row in worst]


def run(stack: Stack, sizes: Sequence[int] = SIZES, rounds: int = 3, churn: int = 200_000) -> list[report.Row]:
    """Measure growth with the rows, and a claim with and without a held snapshot."""
    grown = by_size(stack, sizes, rounds)
    measurements = report.interleaved(rounds, {
        "no snapshot held": lambda: pinned(stack, churn, held=False),
        "snapshot held": lambda: pinned(stack, churn, held=True),
    })
    cost = report.medians(measurements)
    rows = [
        *grown,
        report.at_most(f"claim + settle a row, with another client's open transaction over {churn:,} churned rows",
                       cost["snapshot held"], cost["no snapshot held"], "without", 2, " µs"),
    ]
    report.write("scale", rows, measurements)
    return rows
