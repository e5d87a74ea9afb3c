"""Simulate a shop's morning at ten times its speed: lag and backlog under mixed load.

An hour of the shop lasts six minutes: hourly jobs run every six minutes, a delay of a quarter of an hour lasts ninety
seconds, and traffic is ten times a shop's. Half a real hour covers the shop's morning from 06:50 to 11:50.
bench/day_shop.py generates the load.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from typing import Any

import pika
import psycopg2

from bench import api, console, delayed, plots, report, webhooks
from bench.day_shop import HOUR, INTERVAL, OPENS, RECURRING
from bench.servers import ROOT, Bed, Running
from scheduler.dev.servers import Stack

LEAD_SECONDS = 15.0  # from the start of the hosts to the shop's opening; 25,600 jobs are stored in that time
ASKED_A_SECOND = 5  # API requests, in addition to three browsers with the console
QUEUES = ("scheduler_inbox", "mainapp_due", "scheduler_webhooks", "scheduler_results")
# Due and not yet emitted jobs and delayed messages, and open runs.
BACKLOG = ("SELECT (SELECT count(*) FROM jobs WHERE status = 'pending' AND wake_at <= now()) + "
           "(SELECT count(*) FROM delayed_messages WHERE wake_at <= now()), (SELECT count(*) FROM runs)")


class Watch:
    """Samples the backlog every second."""

    def __init__(self, bed: Bed, start: float) -> None:
        self.seen: list[dict[str, float]] = []
        self._bed, self._start = bed, start
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        broker = pika.BlockingConnection(pika.URLParameters(self._bed.amqp_url))
        with closing(psycopg2.connect(self._bed.database_url)) as database, closing(broker), database.cursor() as cursor:
            database.autocommit = True
            channel = broker.channel()
            while not self._stop.wait(1.0 - time.time() % 1.0):
                cursor.execute(BACKLOG)
                [(due, opened)] = cursor.fetchall()
                waiting = {queue: channel.queue_declare(queue, passive=True).method.message_count for queue in QUEUES}
                self.seen.append({"at": time.time() - self._start, "due": due, "open runs": opened, **waiting})

    def stop(self) -> list[dict[str, float]]:
        self._stop.set()
        self._thread.join()
        return self.seen


@contextmanager
def process(bed: Bed, *arguments: object) -> Iterator[subprocess.Popen]:
    """Run one of the shop's hosts."""
    running = subprocess.Popen([sys.executable, "-m", "bench.day_shop", *map(str, arguments)], cwd=ROOT, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"AMQP_URL": bed.amqp_url})
    try:
        yield running
    finally:
        running.kill()
        running.wait()


@contextmanager
def role(bed: Bed, *arguments: str, **env: str) -> Iterator[None]:
    """Run one of our processes and read its log, which would fill an unread pipe."""
    running = Running([sys.executable, "-m", "scheduler", *arguments], bed, env)
    try:
        running.ready()
        assert running.popen.stderr
        threading.Thread(target=api.swallow, args=(running.popen.stderr.fileno(),), daemon=True).start()
        yield
    finally:
        running.popen.terminate()
        running.popen.wait()


@contextmanager
def sidecar(bed: Bed) -> Iterator[str]:
    """Run a consumer, two producers, a worker and the API; yield its URL."""
    with ExitStack() as running:
        for name in ("consumer", "producer", "producer"):
            running.enter_context(role(bed, name))
        running.enter_context(role(bed, "worker", SCHEDULER_WEBHOOK_ALLOW="127.0.0.1",
                                   SCHEDULER_WEBHOOK_HOST_CONCURRENCY="100"))
        yield running.enter_context(api.serving(bed))


@contextmanager
def people(bed: Bed, url: str, seconds: float) -> Iterator[subprocess.Popen]:
    """Open the console in three browsers, and send API requests while the shop is open."""
    port, token = int(url.rpartition(":")[2]), api.token()
    job = bed.sql("SELECT id FROM jobs LIMIT 1")[0][0]
    requests = api.load("paced", url, ["/api/v1/jobs?limit=20", "/api/v1/stats", f"/api/v1/jobs/{job}", "/api/v1/runs?limit=20"],
                     rate=ASKED_A_SECOND, seconds=seconds, connections=4)
    with ExitStack() as opened:
        with closing(console.Browser(port, token)) as browser:
            for page in ("/", "/jobs", "/runs"):
                opened.enter_context(closing(console.watch(port, token, console.stream(browser, page))))
        try:
            yield requests
        finally:
            if requests.poll() is None:
                requests.kill()
                requests.wait()


def lived(
    stack: Stack, minutes: float, pending: int, sampling: Callable[[Bed], AbstractContextManager[None]] = nullcontext
) -> dict[str, Any]:
    """Run the shop for some minutes and return all measurements; `sampling` is open while the processes run."""
    with Bed(stack, "default") as bed, webhooks.endpoint() as endpoint, ExitStack() as running:
        delayed.bind(bed)
        bed.fill(pending, "now() + interval '1 day' + n * interval '1 millisecond'", created_at="now() - n * interval '1 second'")
        bed.analyze()
        url = running.enter_context(sidecar(bed))
        running.enter_context(sampling(bed))
        start = time.time() + LEAD_SECONDS
        end = start + minutes * 60
        host = running.enter_context(process(bed, "host", start, end))
        assert host.stdout
        assert host.stdout.readline() == "ready\n"
        shop = running.enter_context(process(bed, "shop", start, end, endpoint.url("")))
        requests = running.enter_context(people(bed, url, end - time.time()))
        watch = Watch(bed, start)
        try:
            shopped = json.loads(shop.communicate()[0])
            settle(bed, end)
        finally:
            seen = watch.stop()
        came = json.loads(host.communicate("\n")[0])
        ended = dict(bed.sql("SELECT status::text, count(*) FROM run_history GROUP BY 1"))
        return {"requested": shopped, "received": came, "seen": seen, "runs": ended, "webhook ms": sorted(endpoint.stats()["late"]),
                "api ms": api.result(requests)["ms"], "minutes": minutes}


def settle(bed: Bed, end: float) -> None:
    """Wait until everything due before the end has arrived."""
    time.sleep(max(0.0, end - time.time()))
    deadline = time.monotonic() + 180
    while bed.sql(BACKLOG)[0] != (0, 0) or any(map(bed.depth, QUEUES)):
        if time.monotonic() > deadline:
            raise TimeoutError(str(bed.sql(BACKLOG)))
        time.sleep(0.5)


def lost(outcome: dict[str, Any]) -> tuple[int, int]:
    """Return the number of wrong outcomes, and the total."""
    requested, runs = outcome["requested"], outcome["runs"]
    came = {kind: figures["count"] for kind, figures in outcome["received"]["kinds"].items()}
    expected = {kind: (requested[kind], came.get(kind, 0)) for kind in ("reminder", "delayed", *RECURRING)} | {
        "webhooks that succeed": (requested["webhook"] + requested["flaky"], runs.get("succeeded", 0)),
        "dead webhooks": (requested["broken"], runs.get("dead", 0)),
        "cancelled": (0, came.get("cancelled", 0)),
    }
    for kind, (should, did) in expected.items():
        print(f"    {kind:<24} {should:>9,} expected, {did:>9,} received", flush=True)
    return sum(abs(should - did) for should, did in expected.values()), sum(should for should, _ in expected.values())


def run(stack: Stack, minutes: float = 30, pending: int = 1_000_000) -> list[report.Row]:
    """Run the day and return its lags."""
    outcome = lived(stack, minutes, pending)
    late = {kind: figures["all"] for kind, figures in outcome["received"]["kinds"].items()}
    missing, of_all = lost(outcome)
    most = max(outcome["seen"], key=lambda sample: sample["due"])
    last = max(late[kind]["most"] for kind in ("report", "digest"))
    spoken = f"{minutes:g} minutes at ten times speed"
    rows = [
        report.limit(f"a shop's day, {spoken}: events without the expected outcome", missing, 0, "", f"of {of_all:,}"),
        report.limit("a shop's day: reminders, due to received, p50", late["reminder"]["p50"], 10, "ms"),
        report.limit("a shop's day: reminders, due to received, p99", late["reminder"]["p99"], 100, "ms"),
        report.limit("a shop's day: delayed messages, due to received, p99", late["delayed"]["p99"], 100, "ms"),
        report.limit("a shop's day: webhooks, due to first call, p99", _share(outcome["webhook ms"], 0.99), 250, "ms"),
        report.limit("a shop's day: the last event due at a full hour", last / 1000, 10, "s",
                     f"largest backlog {most['due']:,.0f}"),
        report.limit("a shop's day: API requests, p99", _share(outcome["api ms"], 0.99), 100, "ms",
                     f"p50 {_share(outcome['api ms'], 0.5):.1f} ms"),
    ]
    report.write("day", rows, outcome | {name: _share(outcome[name], 0.99) for name in ("webhook ms", "api ms")})
    plots.day(outcome["received"]["kinds"], outcome["seen"], INTERVAL, lambda second: OPENS + second / HOUR)
    return rows


def _share(ordered: list[float], share: float) -> float:
    return ordered[int(len(ordered) * share)]
