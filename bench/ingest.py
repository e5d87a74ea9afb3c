"""Benchmark storing: commands per second, latency of a single one, and memory."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from uuid import uuid4

import pika
import psutil
import psycopg2

from bench import report
from bench.servers import PAYLOAD, ROOT, Bed, Meter, finished_in, no_meter
from scheduler.dev.servers import Stack

RUN_AT = "2099-01-01T00:00:00Z"


def _request() -> bytes:
    return json.dumps({"id": str(uuid4()), "job_type": "bench.job", "payload": PAYLOAD, "run_at": RUN_AT}).encode()


def fill_inbox(bed: Bed, count: int) -> str:
    """Publish `count` requests with our pipelined publisher; return the last one's id."""
    from scheduler.rabbit.frames import AmqpMessage  # noqa: PLC0415 - modules of the measured tree
    from scheduler.rabbit.link import Link  # noqa: PLC0415 - modules of the measured tree
    from scheduler.rabbit.publisher import Publisher  # noqa: PLC0415 - modules of the measured tree

    bed.purge("scheduler_inbox")
    link = Link(bed.amqp_url, "bench")
    publisher = Publisher(link)
    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
    for start in range(0, count, 2000):
        size = min(2000, count - start)
        bodies = [_request() for _ in range(size)]
        publisher.send([AmqpMessage("schedule.commands", "request", body, properties) for body in bodies]).wait(60)
    link.close()
    return str(json.loads(bodies[-1])["id"])


def yardstick(bed: Bed, name: str, count: int) -> float:
    bed.sql("TRUNCATE jobs")
    fill_inbox(bed, count)
    done = subprocess.run(
        [sys.executable, "-m", "bench.yardsticks", name, str(count)], cwd=ROOT, check=True, text=True,
        capture_output=True, env=os.environ | {"DATABASE_URL": bed.database_url, "AMQP_URL": bed.amqp_url},
    )
    return count / float(done.stdout)


def ours(bed: Bed, count: int, consumers: int, meter: Meter = no_meter) -> float:
    """Start the consumers on a full queue. Time and `meter` run from the first row to the last."""
    bed.sql("TRUNCATE jobs")
    last = fill_inbox(bed, count)
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(bed.process("scheduler", "consumer", wait=False)) for _ in range(consumers)]
        finished_in(bed, "EXISTS (SELECT 1 FROM jobs)", time.monotonic())
        started = time.monotonic()
        meter(running)
        # Counting rows repeatedly would cost processor time: first wait for the queue's last message.
        finished_in(bed, f"EXISTS (SELECT 1 FROM jobs WHERE id = '{last}')", started)
        rate = count / finished_in(bed, f"(SELECT count(*) FROM jobs) >= {count}", started)
        meter(running)
        return rate


def lone_message(bed: Bed, times: int = 100) -> list[float]:
    """Return the milliseconds from publish to commit, one message at a time."""
    database = psycopg2.connect(bed.database_url)
    database.autocommit = True
    channel = pika.BlockingConnection(pika.URLParameters(bed.amqp_url)).channel()
    seconds = []
    with bed.process("scheduler", "consumer"), database.cursor() as cursor:
        for _ in range(times):
            body = _request()
            started = time.perf_counter()
            channel.basic_publish("schedule.commands", "request", body)
            while True:
                cursor.execute("SELECT 1 FROM jobs WHERE id = %s", (json.loads(body)["id"],))
                if cursor.fetchone():
                    break
            seconds.append((time.perf_counter() - started) * 1000)
    channel.connection.close()
    database.close()
    return seconds


def memory(bed: Bed, count: int) -> float:
    """Return the peak resident memory (MB) of a consumer with `count` queued messages."""
    bed.sql("TRUNCATE jobs")
    fill_inbox(bed, count)
    most = 0.0
    with bed.process("scheduler", "consumer") as running:
        process = psutil.Process(running.popen.pid)
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            most = max(most, process.memory_info().rss / 1e6)
            time.sleep(0.05)
    return most


def run(stack: Stack, rounds: int = 5, count: int = 50_000, waiting: int = 1_000_000) -> list[report.Row]:
    """Measure storing compared with one commit per message, and with a consumer that stores nothing."""
    with Bed(stack) as bed:
        rates = report.interleaved(rounds, {
            "one message, one commit": lambda: yardstick(bed, "plain_consumer", count // 10),
            "bare consumer": lambda: yardstick(bed, "bare_consumer", count),
            "1 consumer": lambda: ours(bed, count, 1),
            "2 consumers": lambda: ours(bed, count, 2),
        })
        lone = lone_message(bed)
        megabytes = memory(bed, waiting)
    rate = report.medians(rates)
    rows = [
        report.at_least("commands stored, 1 consumer", rate["1 consumer"], rate["one message, one commit"],
                        "one message, one commit", 8),
        report.at_least("commands stored, 1 consumer", rate["1 consumer"], rate["bare consumer"], "bare consumer", 0.6),
        report.at_least("commands stored, 2 consumers", rate["2 consumers"], rate["1 consumer"], "1 consumer", 1),
        report.limit("publish to commit, a single message, median", statistics.median(lone), 10, "ms"),
        report.limit(f"memory with {waiting:,} queued messages", megabytes, 150, "MB"),
    ]
    report.write("ingest", rows, rates | {"lone ms": lone})
    return rows
