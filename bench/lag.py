"""Benchmark lag: confirmed minus due_at at a steady rate, compared with plain polling; and the cost of an idle replica."""

import contextlib
import re
import statistics
import threading
import time
from datetime import datetime
from itertools import pairwise

import pika
import psutil

from bench import plots, report
from bench.servers import Bed, Running
from scheduler.dev.servers import Stack

Lags = dict[int, list[dict[float, int]]]  # histograms by rate, one per round


def receive(bed: Bed, count: int, seconds: float) -> list[float]:
    """Return the milliseconds from due_at to receipt by a host, which follows the confirm."""
    late: list[float] = []
    done = threading.Event()

    def consume() -> None:
        connection = pika.BlockingConnection(pika.URLParameters(bed.amqp_url))
        channel = connection.channel()
        for method, _, body in channel.consume("mainapp_due", auto_ack=True, inactivity_timeout=1):
            if method is not None:
                due = re.search(rb'"due_at":"([^"]+)"', body)
                late.append((time.time() - datetime.fromisoformat(due[1].decode()).timestamp()) * 1000)
            if len(late) >= count or done.is_set():
                break
        channel.cancel()
        connection.close()

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join(seconds + 30)
    done.set()
    thread.join()
    return late


def histogram(processes: list[Running]) -> dict[float, int]:
    """Return the sum of the producers' lag histograms: upper bound → cumulative count."""
    total: dict[float, int] = {}
    for process in processes:
        for bound, count in re.findall(r'scheduler_due_lag_seconds_bucket\{le="([^"]+)"\} ([0-9.e+]+)', process.metrics()):
            total[float(bound)] = total.get(float(bound), 0) + int(float(count))
    return total


def within(buckets: dict[float, int], seconds: float) -> float:
    """Return the share of events confirmed within `seconds` of their due_at."""
    return buckets[seconds] / buckets[float("inf")]


def quantile(buckets: dict[float, int], share: float) -> float:
    """Return the milliseconds within which that share was confirmed, interpolated like Prometheus."""
    rank = share * buckets[float("inf")]
    for (low, before), (high, count) in pairwise([(0.0, 0), *sorted(buckets.items())]):
        if count >= rank:
            if high == float("inf"):
                return low * 1000
            return (low + (high - low) * (rank - before) / max(count - before, 1)) * 1000
    return float("inf")


def steady(bed: Bed, replicas: list[Running], rate: int, seconds: int) -> tuple[dict[float, int], list[float]]:
    """Let jobs fall due at a steady rate; return the replicas' and the host's lags."""
    count = rate * seconds
    bed.fill(count, f"now() + interval '8 seconds' + n * interval '{1 / rate} seconds'")
    bed.analyze()
    before = histogram(replicas)
    late = receive(bed, count, seconds + 15)
    after = histogram(replicas)
    return {bound: after[bound] - before.get(bound, 0) for bound in after}, late


def poll(stack: Stack, rate: int, seconds: int) -> list[float]:
    """Return the lags (ms) of a plain loop that polls every 500 ms."""
    with Bed(stack) as bed:
        bed.fill(rate * seconds, f"now() + interval '3 seconds' + n * interval '{1 / rate} seconds'")
        late: list[float] = []
        import psycopg2  # noqa: PLC0415 - only this yardstick needs it

        database = psycopg2.connect(bed.database_url)
        channel = pika.BlockingConnection(pika.URLParameters(bed.amqp_url)).channel()
        channel.confirm_delivery()
        while len(late) < rate * seconds:
            with database, database.cursor() as cursor:
                cursor.execute("SELECT id, next_run_at FROM jobs WHERE status = 'pending' AND wake_at <= now() "
                               "ORDER BY wake_at LIMIT 500 FOR UPDATE SKIP LOCKED")
                rows = cursor.fetchall()
                for job_id, due in rows:
                    channel.basic_publish("schedule.events", "due", str(job_id), mandatory=True)
                    late.append((time.time() - due.timestamp()) * 1000)
                    cursor.execute("UPDATE jobs SET status = 'done' WHERE id = %s", (job_id,))
            if not rows:
                time.sleep(0.5)
        channel.connection.close()
        database.close()
        return late


def idle(stack: Stack, seconds: int = 20) -> tuple[float, float, float]:
    """Return an idle replica's CPU in per cent of a core, its queries per second, and its memory in MB."""
    with Bed(stack) as bed:
        bed.fill(100_000, "now() + interval '1 day'")
        bed.analyze()
        with bed.process("scheduler", "producer") as running:
            process = psutil.Process(running.popen.pid)
            time.sleep(12)  # a session reports its first counts only after up to ten idle seconds
            before, calls = process.cpu_times(), _transactions(bed)
            time.sleep(seconds)
            after = process.cpu_times()
            cpu = (after.user + after.system - before.user - before.system) / seconds * 100
            # Our own query of the counter is included.
            return cpu, (_transactions(bed) - calls - 1) / seconds, process.memory_info().rss / 1e6


def _transactions(bed: Bed) -> int:
    bed.sql("SELECT pg_stat_force_next_flush()")
    return bed.sql("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")[0][0]


def full_speed_memory(stack: Stack, count: int = 60_000) -> float:
    """Return the peak resident memory (MB) of a replica that drains a backlog."""
    most = 0.0
    with Bed(stack) as bed:
        bed.fill(count)
        bed.analyze()
        with bed.process("scheduler", "producer") as running:
            process = psutil.Process(running.popen.pid)
            while bed.sql("SELECT EXISTS (SELECT 1 FROM jobs WHERE status = 'pending')")[0][0]:
                most = max(most, process.memory_info().rss / 1e6)
    return most


def at_rates(stack: Stack, queue: str, rounds: int, pending: int) -> tuple[Lags, dict[int, list[float]]]:
    """Return the lags of two replicas and of the host at 100 and 1,000 jobs per second, with `pending` other jobs."""
    lags: Lags = {100: [], 1000: []}
    host: dict[int, list[float]] = {100: [], 1000: []}
    with Bed(stack, queue) as bed:
        bed.fill(pending, "now() + interval '1 day' + n * interval '1 millisecond'")
        with contextlib.ExitStack() as running:
            replicas = [running.enter_context(bed.process("scheduler", "producer")) for _ in range(2)]
            for _ in range(rounds):
                for rate in (100, 1000):
                    histogram, late = steady(bed, replicas, rate, 20)
                    lags[rate].append(histogram)
                    host[rate] += late
    return lags, host


def run(stack: Stack, rounds: int = 3, pending: int = 1_000_000) -> list[report.Row]:
    """Measure lag at 100 and 1,000 jobs per second compared with a 500 ms poll, and an idle replica."""
    # mainapp_due as the contract creates it; with a quorum queue each confirm took about 0.7 ms more.
    lags, host = at_rates(stack, "default", rounds, pending)
    quorum, _ = at_rates(stack, "quorum", rounds, pending)
    polled = poll(stack, 100, 10)
    cpu, queries, _ = idle(stack)
    memory = full_speed_memory(stack)
    yardstick = f"500 ms poll: p50 {statistics.median(polled):.0f}, p99 {statistics.quantiles(polled, n=100)[98]:.0f} ms"

    def late(histograms: list[dict[float, int]], share: float) -> float:
        return statistics.median(quantile(histogram, share) for histogram in histograms)

    share = statistics.median(within(histogram, 0.05) for histogram in lags[1000]) * 100
    rows = [
        report.limit("lag at 100 jobs/s, p50", late(lags[100], 0.5), 3, "ms", yardstick),
        report.limit("lag at 100 jobs/s, p99", late(lags[100], 0.99), 15, "ms", yardstick),
        report.limit("lag at 1,000 jobs/s, p99", late(lags[1000], 0.99), 40, "ms", yardstick),
        report.Row("lag at 1,000 jobs/s, within 50 ms", f"{share:.2f} %", yardstick, None, "≥ 99.9 %", share >= 99.9),
        report.limit("lag at 100 jobs/s, quorum queue, p99", late(quorum[100], 0.99), 10, "ms", yardstick),
        report.limit("lag at 1,000 jobs/s, quorum queue, p99", late(quorum[1000], 0.99), 15, "ms", yardstick),
        report.limit("idle replica, CPU", cpu, 1, "% of a core"),
        report.limit("idle replica, transactions", queries, 4, "/s"),
        report.limit("replica at full speed, memory", memory, 100, "MB"),
    ]
    report.write("lag", rows, {f"{rate}/s": histograms for rate, histograms in lags.items()}
                 | {f"{rate}/s, quorum": histograms for rate, histograms in quorum.items()})
    plots.lag({"100 jobs/s": host[100], "1,000 jobs/s": host[1000], "500 ms poll, 100 jobs/s": polled})
    return rows
