"""Whether the cost of a claim stays flat: many pending rows, and another client's old snapshot."""

import statistics
import time

import psycopg2

from bench import report
from bench.servers import Bed
from scheduler.dev.servers import Stack
from scheduler.postgres.claims import ClaimSession
from scheduler.postgres.classes import FROM_THE_BOTTOM
from scheduler.postgres.jobs.due import Settlement, claim, settle

BATCH = 500


def cycle_cost(bed: Bed, batches: int, *, floor: bool = True) -> float:
    """Return the microseconds a row of claim and settle, as the producer does it, over due rows."""
    session = ClaimSession(bed.database_url, "bench")
    bound, taken = FROM_THE_BOTTOM, []
    for _ in range(batches):
        started = time.perf_counter()
        found = claim(session, BATCH, bound)
        settle(session, Settlement(found.claimed_at, found.claimed_at, done=[job.id for job in found.things]))
        taken.append((time.perf_counter() - started) / len(found.things) * 1e6)
        bound = found.resume_from if floor else FROM_THE_BOTTOM
    session.close()
    return statistics.median(taken)


def pending(stack: Stack, count: int, batches: int) -> float:
    with Bed(stack) as bed:
        # Indexes are quicker to build than to keep while ten million rows come in.
        indexes = bed.sql("SELECT indexname, indexdef FROM pg_indexes "
                          "WHERE tablename = 'jobs' AND indexname <> 'jobs_pkey'")
        bed.sql("ALTER TABLE jobs DROP CONSTRAINT jobs_pkey")
        for name, _ in indexes:
            bed.sql(f"DROP INDEX {name}")
        bed.fill(count, "now() + interval '1 day' + n * interval '1 millisecond'")
        bed.sql("SET maintenance_work_mem = '512MB'; ALTER TABLE jobs ADD PRIMARY KEY (id)")
        for _, definition in indexes:
            bed.sql(f"SET maintenance_work_mem = '512MB'; {definition}")
        bed.fill(batches * BATCH)
        bed.analyze()
        cycle_cost(bed, 5)
        return cycle_cost(bed, batches - 5)


def pinned(stack: Stack, churn: int, *, held: bool) -> float:
    """Churn so many rows while another client's transaction may be held open, then measure."""
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
            found = claim(session, BATCH, bound)
            settle(session, Settlement(found.claimed_at, found.claimed_at, done=[job.id for job in found.things]))
            bound = found.resume_from
        # As in the producer: a look from the bottom at every poll interval, the rest from the floor.
        taken = []
        for turn in range(40):
            started = time.perf_counter()
            found = claim(session, BATCH, FROM_THE_BOTTOM if turn % 10 == 0 else bound)
            settle(session, Settlement(found.claimed_at, found.claimed_at, done=[job.id for job in found.things]))
            taken.append((time.perf_counter() - started) / len(found.things) * 1e6)
            bound = found.resume_from
        session.close()
        other.close()
        return statistics.mean(taken)


def run(stack: Stack, rounds: int = 3, many: int = 10_000_000, few: int = 100_000) -> list[report.Row]:
    """Measure a claim with many rows beside few, and with a snapshot held beside none."""
    found = report.interleaved(rounds, {
        "no snapshot held": lambda: pinned(stack, 200_000, held=False),
        "snapshot held": lambda: pinned(stack, 200_000, held=True),
    })
    # Ten million rows take minutes to load: once, with the small table before and after it.
    before = pending(stack, few, 60)
    large = pending(stack, many, 60)
    after = pending(stack, few, 60)
    cost = report.medians(found)
    rows = [
        report.at_most(f"claim + settle a row, {many:,} pending", large, (before + after) / 2, f"{few:,} pending",
                       1.3, " µs"),
        report.at_most("claim + settle a row, another's transaction held open over 200,000 churned rows",
                       cost["snapshot held"], cost["no snapshot held"], "none held", 2, " µs"),
    ]
    report.write("scale", rows, found | {"few": [before, after], "many": large})
    return rows
