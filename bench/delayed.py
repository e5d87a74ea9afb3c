"""Benchmark delayed messages: storing and emitting rates, the cost of the entry exchange, and lag."""

import contextlib
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from uuid import uuid4

import pika

from bench import emit, ingest, report
from bench.lag import quantile
from bench.servers import ROOT, Bed, Running, finished_in, insert
from bench.yardsticks import BODY
from scheduler.dev.servers import Stack
from scheduler.rabbit import content_header
from scheduler.rabbit.frames import AmqpMessage, RawMessage
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher

KEY = "delayed"  # one word, like the events' key: topic exchanges take longer for each additional word
DAY_MS = 86_400_000
PROPERTIES = pika.BasicProperties(content_type="application/json", delivery_mode=2, headers={"x-delay": DAY_MS})


def bind(bed: Bed) -> None:
    """Declare a queue for emitted messages with the type of the events' queue."""
    connection = pika.BlockingConnection(pika.URLParameters(bed.amqp_url))
    channel = connection.channel()
    channel.queue_declare(KEY, durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_bind(KEY, "schedule.delayed", KEY)
    connection.close()


def publish(bed: Bed, messages: Callable[[int], list[AmqpMessage] | list[RawMessage]], count: int) -> float:
    """Publish `count` messages with our pipelined publisher, and return confirms per second."""
    link = Link(bed.amqp_url, "bench")
    publisher = Publisher(link)
    batches = [messages(min(2000, count - start)) for start in range(0, count, 2000)]
    began = time.monotonic()
    for batch in batches:
        publisher.send(batch).wait(60)
    rate = count / (time.monotonic() - began)
    link.close()
    return rate


def stored(bed: Bed, count: int, *, named: bool) -> float:
    """Start a consumer on a full queue, and return stored messages per second from the first row to the last.

    Each has its own UUID and delay, or all are identical.
    """
    bed.sql("TRUNCATE delayed_messages")
    bed.purge("scheduler_delay")

    def messages(size: int) -> list[AmqpMessage]:
        return [AmqpMessage("schedule.delay", KEY, BODY, pika.BasicProperties(
            content_type="application/json", delivery_mode=2, headers={"x-delay": DAY_MS + number},
            message_id=str(uuid4()),
        ) if named else PROPERTIES) for number in range(size)]

    publish(bed, messages, count)
    with bed.process("scheduler", "consumer", wait=False):
        finished_in(bed, "EXISTS (SELECT 1 FROM delayed_messages)", time.monotonic())
        started = time.monotonic()
        # Counting rows repeatedly would cost processor time; the numbers are assigned in order.
        last = int(bed.sql("SELECT min(id) FROM delayed_messages")[0][0]) + count - 1
        return count / finished_in(bed, f"EXISTS (SELECT 1 FROM delayed_messages WHERE id = {last})", started)


def row(when: str) -> dict[str, str]:
    """Return a message as a consumer stores it; values are SQL expressions of the row number n."""
    raw = b"".join(PROPERTIES.encode())
    written = content_header.read(raw).encode(replace={b"x-delay": content_header.number(-DAY_MS)})
    return {
        "exchange": "'schedule.delayed'", "due_at": when, "wake_at": when,
        **{name: f"decode('{value.hex()}', 'hex')"
           for name, value in (("routing_key", KEY.encode()), ("properties", written), ("body", BODY))},
    }


def fill(bed: Bed, count: int, when: str) -> None:
    """Add messages; `when` is an SQL expression of the row number n."""
    insert(bed, "delayed_messages", row(when), count)
    bed.sql("VACUUM ANALYZE delayed_messages")
    bed.sql("CHECKPOINT")


def out(bed: Bed, count: int) -> float:
    """Let `count` messages fall due at once with one replica, and return messages/s."""
    bed.sql("TRUNCATE delayed_messages")
    fill(bed, count, "now() + interval '1 hour'")
    with bed.process("scheduler", "producer"):
        due = "now() + interval '2 seconds'"
        bed.sql(f"UPDATE delayed_messages SET due_at = {due}, wake_at = {due}")
        bed.sql("VACUUM delayed_messages")
        bed.sql(f"SELECT pg_notify('scheduler_wakeup', 'delayed ' || ({due})::text)")
        bed.sql("SELECT pg_sleep_until(min(due_at)) FROM delayed_messages")
        rate = count / finished_in(bed, "NOT EXISTS (SELECT 1 FROM delayed_messages)", time.monotonic())
    bed.purge(KEY)
    return rate


def events(bed: Bed, count: int) -> float:
    emit.one_shots(bed, count)
    return emit.drain(bed, count, 1)


def by_pika(bed: Bed, exchange: str, count: int) -> float:
    """Publish without a delay header through pika with pipelined confirms, and return confirms per second."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.yardsticks", "pipelined_publisher", str(count)], cwd=ROOT, check=True, text=True,
        capture_output=True, env=os.environ | {"AMQP_URL": bed.amqp_url, "EXCHANGE": exchange, "ROUTING_KEY": KEY},
    )
    bed.purge(KEY)
    return count / float(done.stdout)


def by_frames(bed: Bed, exchange: str, count: int) -> float:
    """Publish pre-encoded frames: the client costs almost nothing, so the broker is the limit."""
    plain = pika.BasicProperties(content_type="application/json", delivery_mode=2, headers={"other": 1})
    raw = b"".join(plain.encode())
    message = RawMessage(exchange, KEY.encode(), raw, BODY)
    rate = publish(bed, lambda size: [message] * size, count)
    bed.purge(KEY)
    return rate


def lag(bed: Bed, replicas: list[Running], rate: int, seconds: int) -> float:
    """Let messages fall due at a steady rate, and return the 99th percentile of confirmed minus due, in ms."""
    before = _histogram(replicas)
    fill(bed, rate * seconds, f"now() + interval '8 seconds' + n * interval '{1 / rate} seconds'")
    finished_in(bed, "NOT EXISTS (SELECT 1 FROM delayed_messages WHERE wake_at < now() + interval '1 hour')",
                time.monotonic())
    after = _histogram(replicas)
    bed.purge(KEY)
    return quantile({bound: after[bound] - before.get(bound, 0) for bound in after}, 0.99)


def lags(stack: Stack, rounds: int, waiting: int) -> list[float]:
    """Measure the lag repeatedly with many other pending messages, on otherwise idle servers, like `lag`."""
    with Bed(stack) as bed, contextlib.ExitStack() as running:
        bind(bed)
        fill(bed, waiting, "now() + interval '1 day' + n * interval '1 millisecond'")
        replicas = [running.enter_context(bed.process("scheduler", "producer")) for _ in range(2)]
        return [lag(bed, replicas, 100, 15) for _ in range(rounds)]


def _histogram(processes: list[Running]) -> dict[float, int]:
    total: dict[float, int] = {}
    for process in processes:
        matches = re.findall(r'scheduler_delayed_lag_seconds_bucket\{le="([^"]+)"\} ([0-9.e+]+)', process.metrics())
        for bound, count in matches:
            total[float(bound)] = total.get(float(bound), 0) + int(float(count))
    return total


def run(stack: Stack, rounds: int = 3, count: int = 30_000, waiting: int = 1_000_000) -> list[report.Row]:
    """Measure delayed messages compared with commands and events."""
    late = lags(stack, rounds, waiting)
    with Bed(stack) as bed:
        bind(bed)
        rates = report.interleaved(rounds, {
            "requests stored": lambda: ingest.ours(bed, count, 1),
            "delayed stored": lambda: stored(bed, count, named=False),
            "delayed stored, with UUIDs": lambda: stored(bed, count, named=True),
            "one-shot events": lambda: events(bed, count),
            "delayed out": lambda: out(bed, count),
        })
        rates |= report.interleaved(2 * rounds - 1, {
            f"{where}, {client}": (lambda exchange=exchange, measure=measure, many=many: measure(bed, exchange, many))
            for client, measure, many in (("pika", by_pika, count), ("frames", by_frames, 2 * count))
            for where, exchange in (("directly to the exit", "schedule.delayed"), ("through the entry", "schedule.delay"))
        })
    rate = report.medians(rates)
    requests = rate["requests stored"]
    rows = [
        report.at_least("delayed messages stored, 1 consumer", rate["delayed stored"], requests, "requests", 0.9),
        report.at_least("the same, each with its own UUID and delay", rate["delayed stored, with UUIDs"],
                        requests, "requests", 0.9),
        report.at_least("delayed messages emitted, 1 replica", rate["delayed out"], rate["one-shot events"],
                        "one-shot events", 0.95),
        *(report.at_least(f"undelayed messages through the entry, {how}", rate[f"through the entry, {client}"],
                          rate[f"directly to the exit, {client}"], "directly to the exit", 0.95)
          for client, how in (("pika", "by pika, pipelined"), ("frames", "by pre-encoded frames"))),
        report.limit(f"lag of delayed messages at 100/s, {waiting:,} waiting, p99", statistics.median(late), 15, "ms"),
    ]
    report.write("delayed", rows, rates | {"lag ms": late})
    return rows
