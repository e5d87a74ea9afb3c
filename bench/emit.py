"""Benchmark emission: confirmed events per second with one replica and with several."""

import contextlib
import os
import statistics
import subprocess
import sys
import time

import psutil

from bench import plots, report
from bench.servers import ROOT, Bed, Meter, Running, finished_in, no_meter
from scheduler.dev.servers import Stack

RULES = ("FREQ=MINUTELY", "FREQ=HOURLY;INTERVAL=2", "FREQ=DAILY", "FREQ=WEEKLY;BYDAY=MO,WE,FR",
         "FREQ=MONTHLY;BYMONTHDAY=-1", "FREQ=YEARLY;BYMONTH=3;BYDAY=2SU")


def yardstick(bed: Bed, name: str, count: int) -> float:
    """Return the yardstick's rate."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.yardsticks", name, str(count)], cwd=ROOT, check=True, text=True,
        capture_output=True, env=os.environ | {"DATABASE_URL": bed.database_url, "AMQP_URL": bed.amqp_url},
    )
    bed.purge("mainapp_due")
    return count / float(done.stdout)


def one_shots(bed: Bed, count: int) -> None:
    bed.sql("TRUNCATE jobs")
    bed.fill(count, "now() + interval '1 hour'")
    bed.analyze()


def recurring(bed: Bed, count: int) -> None:
    """Fill with a mix of rules that started a day, a year or ten years ago."""
    bed.sql("TRUNCATE jobs")
    rules = "ARRAY[" + ", ".join(f"'{rule}'" for rule in RULES) + "]"
    start = "now() - (ARRAY[1, 365, 3650])[1 + n % 3] * interval '1 day'"
    bed.fill(count, "now() + interval '1 hour'", rrule=f"({rules})[1 + n % {len(RULES)}]", starts_at=start,
             dtstart=f"({start}) AT TIME ZONE 'America/New_York'", timezone="'America/New_York'")
    bed.analyze()


def drain(bed: Bed, count: int, replicas: int, meter: Meter = no_meter, **env: str) -> float:
    """Let all jobs in the table fall due at once with `replicas` producers, and return events/s.

    `meter` is called with the replicas when the jobs fall due, and again when all are emitted.
    """
    return timed_drain(bed, count, replicas, meter, **env)[0]


def timed_drain(bed: Bed, count: int, replicas: int, meter: Meter = no_meter, **env: str) -> tuple[float, float]:
    """Drain as in `drain`; also return the replicas' processor microseconds per event."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(bed.process("scheduler", "producer", **env)) for _ in range(replicas)]
        due = "now() + interval '2 seconds'"
        bed.sql(f"UPDATE jobs SET next_run_at = {due}, starts_at = least(starts_at, {due})")
        bed.sql("VACUUM jobs")
        bed.sql("SELECT pg_sleep_until(min(next_run_at)) FROM jobs")
        started, before = time.monotonic(), _processor_seconds(running)
        meter(running)
        condition = "NOT EXISTS (SELECT 1 FROM jobs WHERE status = 'pending' AND wake_at <= now())"
        rate = count / finished_in(bed, condition, started)
        cpu_micros = (_processor_seconds(running) - before) / count * 1e6
        meter(running)
    bed.purge("mainapp_due")
    return rate, cpu_micros


def _processor_seconds(processes: list[Running]) -> float:
    times = [psutil.Process(process.popen.pid).cpu_times() for process in processes]
    return sum(process_times.user + process_times.system for process_times in times)


def run(stack: Stack, rounds: int = 5, count: int = 30_000) -> list[report.Row]:
    """Measure one-shot and recurring jobs compared with the plain loop and the fastest publishers."""
    cpu_micros: dict[str, list[float]] = {"one-shot": [], "recurring": []}
    with Bed(stack) as bed:
        def shots(replicas: int) -> float:
            one_shots(bed, count)
            rate, microseconds = timed_drain(bed, count, replicas)
            if replicas == 1:
                cpu_micros["one-shot"].append(microseconds)
            return rate

        def rules() -> float:
            recurring(bed, count)
            rate, microseconds = timed_drain(bed, count, 1)
            cpu_micros["recurring"].append(microseconds)
            return rate

        def plain() -> float:
            bed.sql("TRUNCATE jobs")
            bed.fill(count // 10)
            bed.analyze()
            return yardstick(bed, "plain_loop", count // 10)

        rates = report.interleaved(rounds, {
            "plain loop": plain,
            "pika publisher": lambda: yardstick(bed, "pipelined_publisher", count),
            "publisher with our frames": lambda: yardstick(bed, "framed_publisher", count),
            **{f"{n} replica{'s' * (n > 1)}": (lambda n=n: shots(n)) for n in (1, 2, 3, 4)},
            "recurring, 1 replica": rules,
        })
    rate = report.medians(rates)
    best = max(rate[f"{n} replicas"] for n in (2, 3, 4))
    own = {kind: statistics.median(micros) for kind, micros in cpu_micros.items()}
    rows = [
        report.at_least("one-shot events, 1 replica", rate["1 replica"], rate["plain loop"], "plain loop", 8),
        *(report.at_least(what, ours, rate[name], name, goal)
          for name in ("pika publisher", "publisher with our frames")
          for what, ours, goal in (("one-shot events, 1 replica", rate["1 replica"], 0.7),
                                   ("one-shot events, best of 2–4", best, 0.9))),
        report.at_least("recurring events, 1 replica", rate["recurring, 1 replica"], rate["1 replica"],
                        "our one-shot", 0.8),
        report.limit("processor time of a replica for a one-shot event", own["one-shot"], 45, "µs"),
        report.limit("processor time of a replica for a recurring event", own["recurring"], 60, "µs"),
    ]
    report.write("emit", rows, rates | cpu_micros)
    plots.throughput(rate)
    return rows


def burst(stack: Stack, rounds: int = 3, count: int = 100_000) -> list[report.Row]:
    """Measure 100,000 jobs that fall due in the same second, three replicas."""
    with Bed(stack) as bed:
        def ours() -> float:
            one_shots(bed, count)
            return drain(bed, count, 3)

        rates = report.interleaved(rounds, {
            "pika publisher": lambda: yardstick(bed, "pipelined_publisher", count // 2),
            "burst, 3 replicas": ours,
        })
    rate = report.medians(rates)
    rows = [report.at_least(f"{count:,} jobs due in the same second, 3 replicas", rate["burst, 3 replicas"],
                            rate["pika publisher"], "pika publisher", 0.7)]
    report.write("burst", rows, rates)
    return rows
