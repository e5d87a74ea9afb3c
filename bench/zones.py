"""Benchmark new zone data: planning 100,000 jobs again, and the lag of other jobs in the meantime."""

import tempfile
import time
from pathlib import Path

import psutil

from bench import report
from bench.lag import histogram, quantile, receive
from bench.servers import Bed, finished_in
from scheduler.dev.servers import Stack
from scheduler.domain.recurrence.zone_data import PACKAGED

ZONE = "America/Vancouver"
OLDER, NEWER = ("2099a", "Etc/GMT+8"), ("2099b", "Etc/GMT+7")
RATE, SECONDS = 100, 20


def directory(where: str, version: str, like: str) -> str:
    """Write zone data in which the clocks of ZONE are those of another zone."""
    path = Path(where) / version
    (path / ZONE).parent.mkdir(parents=True)
    (path / ZONE).write_bytes(PACKAGED.file(like))
    (path / "+VERSION").write_text(version)
    return str(path)


def fill(bed: Bed, count: int) -> None:
    """Insert daily jobs that older data planned."""
    bed.sql("INSERT INTO zone_files (version, name, data) VALUES (%s, %s, %s)",
            (OLDER[0], ZONE, PACKAGED.file(OLDER[1])))
    at = "date_trunc('day', now()) + interval '2 days 8 hours' + (n % 1440) * interval '1 minute'"
    bed.fill(count, at, cron="(n % 60) || ' ' || (n / 60 % 24) || ' * * *'", timezone=f"'{ZONE}'",
             zone_version=f"'{OLDER[0]}'", starts_at="now()")


def steady(bed: Bed, replica: object) -> float:
    """Return the p99 lag (ms) of one-shots at a steady rate."""
    count = RATE * SECONDS
    bed.fill(count, f"now() + interval '3 seconds' + n * interval '{1 / RATE} seconds'", job_type="'bench.other'")
    before = histogram([replica])  # type: ignore[list-item]
    receive(bed, count, SECONDS + 10)
    after = histogram([replica])  # type: ignore[list-item]
    return quantile({bound: after[bound] - before.get(bound, 0) for bound in after}, 0.99)


def run(stack: Stack, count: int = 100_000) -> list[report.Row]:
    """Measure planning jobs again with one replica, and the lag of others before it and in the meantime."""
    with tempfile.TemporaryDirectory() as where, Bed(stack, "default") as bed:
        fill(bed, count)
        bed.analyze()
        done = f"NOT EXISTS (SELECT FROM jobs WHERE zone_version = '{OLDER[0]}')"
        older, newer = directory(where, *OLDER), directory(where, *NEWER)
        with bed.process("scheduler", "producer", SCHEDULER_ZONEINFO_DIR=older) as replica:
            usual = steady(bed, replica)
        started = time.monotonic()
        with bed.process("scheduler", "producer", SCHEDULER_ZONEINFO_DIR=newer) as replica:
            busy = steady(bed, replica)
            seconds = finished_in(bed, done, started)
            times = psutil.Process(replica.popen.pid).cpu_times()
    rows = [
        report.limit(f"plan {count:,} jobs again, one replica", seconds, 60, "s"),
        report.Row("processor time of the replica", f"{times.user + times.system:.1f} s", "", None, "", None),
        report.limit("lag of other jobs in the meantime, p99", busy, 1.2 * usual, "ms", f"idle: {usual:.1f} ms"),
    ]
    report.write("zones", rows)
    return rows
