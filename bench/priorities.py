"""Benchmark priorities: the lag of `high` with a backlog of `low`, and the share of `low` under load of `high`."""

import re
import statistics
import time

from bench import report
from bench.lag import quantile
from bench.servers import Bed, Running
from scheduler.dev.servers import Stack

LOW = 200_000
RATE, SECONDS = 100, 4


def by_class(process: Running, name: str) -> dict[float, int]:
    """Return a producer's lag histogram for one class: upper bound → cumulative count."""
    matches = re.findall(rf'scheduler_due_lag_class_seconds_bucket\{{class="{name}",le="([^"]+)"\}} ([0-9.e+]+)',
                       process.metrics())
    return {float(bound): int(float(count)) for bound, count in matches}


def out(process: Running) -> dict[str, float]:
    return {name: float(count) for name, count in
            re.findall(r'scheduler_due_class_total\{class="([a-z]+)"\} ([0-9.e+]+)', process.metrics())}


def high_lag(stack: Stack, low: int) -> float:
    """Return the p99 in milliseconds of `high` jobs at a steady rate with a backlog of `low` jobs."""
    with Bed(stack) as bed:
        if low:
            bed.fill(low, "now() + interval '14 seconds'", priority="'low'")
        # While the low jobs are being emitted: one replica needs about ten seconds for them.
        bed.fill(RATE * SECONDS, f"now() + interval '15.5 seconds' + n * interval '{1 / RATE} seconds'", priority="'high'")
        bed.analyze()
        with bed.process("scheduler", "producer") as running:
            while by_class(running, "high")[float("inf")] < RATE * SECONDS:
                time.sleep(0.5)
            left = bed.sql("SELECT count(*) FROM jobs WHERE status = 'pending'")[0][0]
            if low and not left:
                raise RuntimeError("the low jobs were emitted too early to compete: raise LOW")
            return quantile(by_class(running, "high"), 0.99)


def low_share(stack: Stack, count: int = 40_000) -> float:
    """Return the share of `low` among emitted events while enough `high` jobs are due."""
    with Bed(stack) as bed:
        for name in ("high", "low"):
            bed.fill(count, priority=f"'{name}'")
        bed.analyze()
        with bed.process("scheduler", "producer") as running:
            while (sent := out(running)).get("high", 0) < count * 0.6:
                time.sleep(0.02)
            return sent["low"] / (sent["low"] + sent["high"])


def run(stack: Stack, rounds: int = 5) -> list[report.Row]:
    """Measure both."""
    alone, with_backlog = [], []
    for _ in range(rounds):
        alone.append(high_lag(stack, 0))
        with_backlog.append(high_lag(stack, LOW))
    shares = [low_share(stack) for _ in range(rounds)]
    late, with_none, share = statistics.median(with_backlog), statistics.median(alone), statistics.median(shares)
    rows = [
        report.Row(f"lag of high, p99, while {LOW:,} low jobs are due", f"{late:.1f} ms", f"with none: {with_none:.1f} ms",
                   late / with_none, "≤ 3 ×", late <= 3 * with_none),
        report.Row("share of low while high saturates the producers", f"{share:.3f}", "", None, "≥ 0.1", share >= 0.1),
    ]
    report.write("priorities", rows, {"alone": alone, "with backlog": with_backlog, "shares": shares})
    return rows
