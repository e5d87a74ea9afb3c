"""Benchmark a changed calendar: planning 100,000 jobs again, and the lag of other jobs in the meantime."""

import json
import time

import psutil

from bench import report
from bench.servers import Bed, finished_in
from bench.zones import steady
from scheduler.dev.servers import Stack

FORMER = {"weekend": ["SA", "SU"], "closed": {}, "open": {}, "valid_until": None}
LISTED = 60  # closed dates of the new state, some of which move the next run of all jobs


def fill(bed: Bed, count: int) -> None:
    """Insert daily jobs that the calendar's first state planned."""
    at = "date_trunc('day', now()) + interval '2 days 8 hours' + (n % 1440) * interval '1 minute'"
    bed.fill(count, at, rrule="'FREQ=DAILY'", dtstart=f"({at}) AT TIME ZONE 'UTC'", start_source="'run_at'",
             calendar="'de'", on_closed="'next'", calendar_revision="1", reported_until="now()")
    bed.sql("INSERT INTO calendars (name, tenant, content, version, revision, issued_at, changed) "
            "VALUES ('de', '*', %s, 1, 1, now(), false)", (json.dumps(FORMER),))


def change(bed: Bed) -> None:
    """Store the calendar's second state, in which the day of all next runs is closed."""
    days = [day for day, in bed.sql("SELECT (current_date + 2 + n * 20)::text FROM generate_series(0, %s) AS n", (LISTED,))]
    content = FORMER | {"closed": dict.fromkeys(days, "closed")}
    bed.sql("INSERT INTO former_calendars SELECT name, revision, content FROM calendars")
    bed.sql("UPDATE calendars SET content = %s, version = 2, revision = 2, changed = true", (json.dumps(content),))


def run(stack: Stack, count: int = 100_000) -> list[report.Row]:
    """Measure planning jobs again with one replica, and the lag of others before it and in the meantime."""
    with Bed(stack, "default") as bed:
        fill(bed, count)
        bed.analyze()
        done = "NOT EXISTS (SELECT FROM jobs WHERE calendar_revision = 1)"
        with bed.process("scheduler", "producer") as replica:
            usual = steady(bed, replica)
        change(bed)
        started = time.monotonic()
        with bed.process("scheduler", "producer") as replica:
            busy = steady(bed, replica)
            seconds = finished_in(bed, done, started)
            times = psutil.Process(replica.popen.pid).cpu_times()
    rows = [
        report.limit(f"plan {count:,} jobs again, one replica", seconds, 60, "s"),
        report.Row("processor time of the replica", f"{times.user + times.system:.1f} s", "", None, "", None),
        report.limit("lag of other jobs in the meantime, p99", busy, 1.2 * usual, "ms", f"idle: {usual:.1f} ms"),
    ]
    report.write("calendars", rows)
    return rows
