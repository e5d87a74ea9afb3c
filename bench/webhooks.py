"""Benchmark webhooks: rate compared with a bare client, a fast endpoint next to a hanging one, and memory."""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pika
import psutil

from bench import report
from bench.servers import PAYLOAD, ROOT, Bed
from scheduler.dev.servers import Stack
from scheduler.rabbit.frames import DueMessage
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher

CONCURRENCY = 200
_PROPERTIES = pika.BasicProperties(content_type="application/json", delivery_mode=2)


class Endpoint:
    """A bench/endpoint.py process."""

    def __init__(self, port):
        self.port = port

    def url(self, path="/"):
        return f"http://127.0.0.1:{self.port}{path}"

    def stats(self):
        with urllib.request.urlopen(self.url("/stats"), timeout=30) as answer:
            return json.load(answer)

    def until(self, count, seconds=90):
        """Wait until `count` calls have arrived, and return the statistics."""
        deadline = time.monotonic() + seconds
        while (seen := self.stats())["count"] < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{seen['count']} of {count} calls arrived")
            time.sleep(0.25)
        return seen


    def quiet(self):
        """Wait until no more calls arrive, and return the statistics."""
        before, seen = -1, self.stats()
        while before != seen["count"] or not before:
            time.sleep(1)
            before, seen = seen["count"], self.stats()
        return seen


@contextmanager
def endpoint():
    process = subprocess.Popen([sys.executable, "-m", "bench.endpoint"], cwd=ROOT, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        yield Endpoint(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def event(url):
    now = datetime.now(UTC)
    return json.dumps({
        "event_id": str(uuid4()), "job_id": str(uuid4()), "job_type": "bench.job", "payload": PAYLOAD,
        "due_at": now.isoformat(), "emitted_at": now.isoformat(), "occurrence": 1, "missed": 0, "next_run_at": None,
        "target": {"webhook": {"url": url, "timeout": 60}},
        "run": {"attempt": 1, "attempts_left": 2, "max_attempts": 3, "timeout": 300, "max_delay": 3600,
                "deadline": (now + timedelta(hours=1)).isoformat()},
    }, separators=(",", ":")).encode()


def fill(bed, url, count):
    """Publish `count` attempts with our pipelined publisher."""
    for queue in ("scheduler_webhooks", "scheduler_results"):
        bed.purge(queue)
    link = Link(bed.amqp_url, "bench")
    publisher = Publisher(link)
    for start in range(0, count, 1000):
        size = min(1000, count - start)
        publisher.send([_delivered(url) for _ in range(size)]).wait(60)
    link.close()


def _delivered(url):
    """Return an attempt with properties, as a producer sends it."""
    body = event(url)
    return DueMessage(body, json.loads(body)["event_id"], int(time.time()), expiration="3600000",
                      exchange="schedule.work", routing_key="webhook")


def worker(bed, **more):
    return bed.process("scheduler", "worker", SCHEDULER_WEBHOOK_ALLOW="127.0.0.1", **more)


def ours(bed, count):
    """Return calls per second of one worker on a full queue, from the first call to the last."""
    with endpoint() as server:
        fill(bed, server.url(), count)
        with worker(bed, SCHEDULER_WORKER_CONCURRENCY=str(CONCURRENCY),
                    SCHEDULER_WEBHOOK_HOST_CONCURRENCY=str(CONCURRENCY)):
            seen = server.quiet()
            if seen["count"] < 0.98 * count:  # a few may be postponed at first, before any call has ended
                raise TimeoutError(f"{seen['count']} of {count} calls arrived")
            return seen["count"] / seen["seconds"]


def bare(count):
    """Return calls per second of a bare aiohttp client at the same concurrency."""
    with endpoint() as server:
        subprocess.run([sys.executable, "-m", "bench.webhooks", server.url(), str(count)], cwd=ROOT, check=True,
                       env=os.environ)
        seen = server.stats()
        return seen["count"] / seen["seconds"]


async def _bare_client(url, count):
    import aiohttp  # noqa: PLC0415 - only this yardstick needs it
    from yarl import URL  # noqa: PLC0415 - only this yardstick needs it

    body, url = event(url), URL(url)
    left = iter(range(count))

    async def call(session):
        for _ in left:
            async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                await response.read()

    # Without other session features: aiohttp at its fastest.
    connector, cookies = aiohttp.TCPConnector(limit=0), aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, cookie_jar=cookies, auto_decompress=False) as session:
        await asyncio.gather(*(call(session) for _ in range(CONCURRENCY)))


def neighbour(bed, hanging, rate=50, seconds=8):
    """Return the p99 in ms from due to call of a fast endpoint, while another hangs with pending calls."""
    with ExitStack() as stack:
        fast, dead = (stack.enter_context(endpoint()) for _ in range(2))
        for role in ("consumer", "producer"):
            stack.enter_context(bed.process("scheduler", role))
        stack.enter_context(worker(bed))
        channel = stack.enter_context(pika.BlockingConnection(pika.URLParameters(bed.amqp_url))).channel()
        start = datetime.now(UTC) + timedelta(seconds=4)

        def request(url, run_at):
            channel.basic_publish("schedule.commands", "request", json.dumps({
                "id": str(uuid4()), "job_type": "bench.job", "payload": PAYLOAD, "run_at": run_at.isoformat(),
                "target": {"webhook": {"url": url, "timeout": 60}},
            }).encode(), _PROPERTIES)

        for _ in range(hanging):
            request(dead.url("/hang"), start - timedelta(seconds=2))
        for number in range(rate * seconds):
            request(fast.url("/timed"), start + timedelta(seconds=number / rate))
        late = fast.until(rate * seconds)["late"]
        bed.sql("TRUNCATE jobs, runs")
        for queue in ("scheduler_webhooks", "scheduler_results", "scheduler_inbox"):
            bed.purge(queue)
        return statistics.quantiles(late, n=100)[98]


def memory(bed, in_flight=1000):
    """Return the peak resident memory (MB) of a worker with `count` calls in flight."""
    with endpoint() as server:
        fill(bed, server.url("/hang"), in_flight)
        with worker(bed, SCHEDULER_WORKER_CONCURRENCY=str(in_flight),
                    SCHEDULER_WEBHOOK_HOST_CONCURRENCY=str(in_flight)) as running:
            process = psutil.Process(running.popen.pid)
            server.until(in_flight)
            return max(process.memory_info().rss / 1e6 for _ in range(20) if time.sleep(0.1) is None)


def run(stack: Stack, rounds: int = 3, count: int = 20_000) -> list[report.Row]:
    """Measure a worker compared with a bare client, and the effect of a hanging endpoint."""
    with Bed(stack) as bed:
        rates = report.interleaved(rounds, {
            "bare aiohttp client": lambda: bare(count),
            "1 worker": lambda: ours(bed, count),
        })
        # A single stall of the machine determines a round's p99, so use more rounds and the median.
        rates |= report.interleaved(rounds + 2, {
            "fast endpoint alone, p99 ms": lambda: neighbour(bed, 0),
            "next to a hanging endpoint, p99 ms": lambda: neighbour(bed, 1000),
        })
        megabytes = memory(bed)
    rate = report.medians(rates)
    rows = [
        report.at_least("webhooks, 1 worker", rate["1 worker"], rate["bare aiohttp client"], "bare aiohttp client", 0.6),
        report.at_most("a fast endpoint's p99 while another hangs with 1,000 pending calls",
                       rate["next to a hanging endpoint, p99 ms"], rate["fast endpoint alone, p99 ms"], "alone", 2, " ms"),
        report.limit("memory of a worker with 1,000 webhooks in flight", megabytes, 150, "MB"),
    ]
    report.write("webhooks", rows, rates)
    return rows


if __name__ == "__main__":
    asyncio.run(_bare_client(sys.argv[1], int(sys.argv[2])))
