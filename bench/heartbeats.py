"""Benchmark liveness messages: simulated workers against one consumer, with its share of a core and the lag of a result.

`make bench ARGS=heartbeats`. A worker sends one message every ten seconds; 1,000 workers send 100 a second.
"""

import json
import time
from datetime import UTC, datetime
from uuid import uuid4

import pika
import psutil

from bench import report
from bench.servers import Bed
from scheduler.dev.servers import Stack
from scheduler.domain.messages.workers import BEAT_SECONDS
from scheduler.rabbit.frames import AmqpMessage
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher

WORKERS = 1_000
SECONDS = 40.0


def _message(worker: str, beat: int, started_at: str) -> bytes:
    return json.dumps({
        "id": worker, "host": f"simulated-{worker[:8]}", "pid": 1, "version": "bench", "started_at": started_at,
        "offers": ["webhooks", "command.report"], "in_flight": 0, "busy": [], "succeeded": beat, "failed": 0,
        "snoozed": 0, "beat": beat,
    }).encode()


def _publish(bed: Bed, workers: list[str], seconds: float) -> int:
    """Send each worker's message every BEAT_SECONDS, evenly spread; return how many were sent."""
    link = Link(bed.amqp_url, "bench")
    publisher = Publisher(link)
    properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
    started_at, began, sent = datetime.now(UTC).isoformat(), time.monotonic(), 0
    first = int(time.time() / BEAT_SECONDS)  # beats grow from one call to the next
    while (elapsed := time.monotonic() - began) < seconds:
        due = int(elapsed * len(workers) / BEAT_SECONDS)
        messages = [
            AmqpMessage("schedule.commands", "worker",
                        _message(workers[number % len(workers)], first + number // len(workers), started_at), properties)
            for number in range(sent, due)
        ]
        publisher.send(messages).wait(30)
        sent = max(sent, due)
        time.sleep(0.05)
    link.close()
    return sent


def run(stack: Stack) -> list[report.Row]:
    """Measure one consumer."""
    workers = [str(uuid4()) for _ in range(WORKERS)]
    with Bed(stack) as bed, bed.process("scheduler", "consumer") as consumer:
        process = psutil.Process(consumer.popen.pid)
        _publish(bed, workers, BEAT_SECONDS)  # each has a row
        before, began = process.cpu_times(), time.monotonic()
        sent = _publish(bed, workers, SECONDS)
        after, seconds = process.cpu_times(), time.monotonic() - began
        [(stored, silent)] = bed.sql(
            "SELECT count(*), extract(epoch FROM now() - min(last_seen_at))::float8 FROM workers")
    share = (after.user + after.system - before.user - before.system) / seconds
    note = f"{sent / seconds:.0f} messages/s of {stored:,} workers; the oldest row is {silent:.1f} s old"
    rows = [report.Row(f"consumer's share of a core with {WORKERS:,} workers", f"{share:.0%}", note, None, "≤ 25 %",
                       share <= 0.25 and stored == WORKERS and silent < 2 * BEAT_SECONDS)]
    report.write("heartbeats", rows)
    return rows
