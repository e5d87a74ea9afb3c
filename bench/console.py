"""Benchmark the console with a large database: time to first byte, page size, and the cost of fifty browsers."""

import gzip
import html
import http.client
import re
import socket
import statistics
import threading
import time
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta

import pika

from bench import report, runs
from bench.servers import Bed, insert, without_indexes
from scheduler.api.console.session import COOKIE
from scheduler.api.tokens import issue
from scheduler.dev.servers import Stack

KEY = "a secret for the bench of thirty-two bytes"
JOBS, RUNS, HISTORY_DAYS = 1_000_000, 10_000_000, 30
RUNNING = 1000  # jobs with runs, ten thousand each
TURNS = 25
BROWSERS = 50
WATCHED_SECONDS = 30.0
COUNTED_SECONDS = 12.0
LETTERS = 20


class Browser:
    """Requests pages on one connection, like a browser."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Cookie": f"{COOKIE}={token}", "Accept-Encoding": "gzip"}

    def get(self, path: str) -> tuple[float, bytes, bytes]:
        """Return the seconds to the first byte, the transferred bytes, and the content."""
        started = time.perf_counter()
        self._connection.request("GET", path.replace(" ", "%20"), headers=self._headers)
        answer = self._connection.getresponse()  # returns with the first byte of the response
        first = time.perf_counter() - started
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:300])
        head = sum(len(name) + len(value) + 4 for name, value in answer.getheaders())
        content = gzip.decompress(body) if answer.getheader("Content-Encoding") == "gzip" else body
        return first, body + b" " * head, content

    def close(self) -> None:
        self._connection.close()


def fill(bed: Bed, jobs_count: int = JOBS, runs_count: int = RUNS) -> tuple[str, str]:
    """Load the jobs and the runs; return one job with runs, and one run."""
    with without_indexes(bed, "jobs"):
        bed.fill(jobs_count, "now() + interval '1 hour' + n * interval '1 second'", every="interval '1 day'",
                 job_type="'bench.job.' || n % 200", name="'Job number ' || n", run="'{}'::json",
                 created_at="now() - n * interval '1 second'", tenant="'tenant-' || n % 50")
    jobs = [str(row[0]) for row in bed.sql("SELECT id FROM jobs LIMIT %s", (RUNNING,))]
    make_days(bed)
    with without_indexes(bed, "run_history"):
        fill_runs(bed, jobs, runs_count)
    bed.sql("VACUUM ANALYZE jobs")
    bed.sql("VACUUM ANALYZE run_history")
    bed.sql("CHECKPOINT")
    dead = "SELECT event_id FROM run_history WHERE job_id = %s AND status = 'dead' LIMIT 1"
    return jobs[7], str(bed.sql(dead, (jobs[7],))[0][0])


def make_days(bed: Bed) -> None:
    """Create the partitions of past days."""
    for day in range(1, HISTORY_DAYS + 2):
        first = datetime.now(UTC).date() - timedelta(days=day)
        bed.sql(f"CREATE TABLE run_history_{first:%Y%m%d} PARTITION OF run_history "
                f"FOR VALUES FROM ('{first} 00:00+00') TO ('{first + timedelta(days=1)} 00:00+00')")


def fill_runs(bed: Bed, jobs: list[str], count: int) -> None:
    """Load the runs, oldest first, in two concurrent sessions."""
    step = HISTORY_DAYS * 86400 / count
    moment = f"now() - ({count} - n) * interval '{step} seconds'"
    columns = runs.FINISHED | {
        "job_id": f"('{{{','.join(jobs)}}}'::uuid[])[n % {len(jobs)} + 1]", "due_at": moment, "started_at": moment,
        "finished_at": f"{moment} + interval '40 milliseconds'", "job_type": "'bench.job.' || n % 200",
        "tenant": "'tenant-' || n % 50",
        "status": "(CASE WHEN n % 47 = 0 THEN 'dead' ELSE 'succeeded' END)::run_status",
    }
    insert(bed, "run_history", columns, count)


def leave_letters(bed: Bed) -> None:
    """Create some dead letters."""
    connection = pika.BlockingConnection(pika.URLParameters(bed.amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(LETTERS):
        headers = {"x-rejected-reason": "job_type: is missing", "x-rejected-at": datetime.now(UTC).isoformat()}
        properties = pika.BasicProperties(delivery_mode=2, headers=headers)
        channel.basic_publish("schedule.dead", "request", f'{{"id": "{number}"}}'.encode(), properties)
    connection.close()


def first_bytes(browser: Browser, paths: list[str]) -> dict[str, list[float]]:
    """Return the milliseconds to the first byte of each page, measured repeatedly and alternating."""
    times_by_path: dict[str, list[float]] = {path: [] for path in paths}
    for turn in range(TURNS + 2):
        for path in paths:
            first, _, _ = browser.get(path)
            if turn >= 2:  # the first rounds fill caches
                times_by_path[path].append(first * 1000)
    return times_by_path


def transfer(browser: Browser, path: str) -> float:
    """Return the kB of a first visit: the page and every file it references."""
    _, line, content = browser.get(path)
    files = set(re.findall(rb"/static/[\w.-]+", content))
    return (len(line) + sum(len(browser.get(file.decode())[1]) for file in files)) / 1000


def statements(bed: Bed, seconds: float) -> float:
    """Return the statements per second of the API's sessions; each is a separate transaction.

    Earlier statements do not count: an idle session may report them ten seconds later.
    """
    time.sleep(COUNTED_SECONDS)
    count = "SELECT sum(xact_commit) FROM pg_stat_database WHERE datname = current_database()"
    bed.sql("SELECT pg_stat_clear_snapshot()")
    before, started = int(bed.sql(count)[0][0]), time.monotonic()
    time.sleep(seconds)
    return (int(bed.sql(count)[0][0]) - before - 1) / (time.monotonic() - started)


def streams(browser: Browser, job: str, event: str) -> list[str]:
    """Return the pages of fifty users: overview, jobs, runs and lists."""
    pages = ["/"] * 20 + [f"/jobs/{job}"] * 10 + [f"/runs/{event}"] * 10 + ["/jobs"] * 5 + ["/runs?status=dead"] * 5
    return [stream(browser, page) for page in pages[:BROWSERS]]


def stream(browser: Browser, page: str) -> str:
    """Return the event stream URL of the page."""
    content = browser.get(page)[2].decode()
    address = html.unescape(re.search(r'data-live="([^"]+)"', content)[1])  # type: ignore[index]
    last = re.search(r'data-last="([^"]*)"', content)
    rows = re.findall(r'<tr id="(?:job|run)-([0-9a-f-]+)"', content)
    return f"{address}&last={last[1]}&rows={','.join(rows)}" if last else address


def watch(port: int, token: str, address: str) -> socket.socket:
    """Open a page's event stream, and read and discard its data."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=60)
    opened.sendall(f"GET {address} HTTP/1.1\r\nHost: x\r\nCookie: {COOKIE}={token}\r\n\r\n".encode())
    assert b"200 OK" in opened.recv(4096)
    threading.Thread(target=_drain, args=(opened,), daemon=True).start()
    return opened


def _drain(opened: socket.socket) -> None:
    with suppress(OSError):
        while opened.recv(65536):
            pass


def run(stack: Stack) -> list[report.Row]:
    """Load the database and measure the three figures."""
    with Bed(stack) as bed:
        started = time.monotonic()
        job, event = fill(bed)
        leave_letters(bed)
        print(f"    loaded in {time.monotonic() - started:.0f} s", flush=True)
        return measure(bed, job, event)


def measure(bed: Bed, job: str, event: str) -> list[report.Row]:
    """Measure on a loaded database."""
    token = issue(KEY, role="admin", sub="bench", tenant=None, lifetime=timedelta(hours=1))
    port = _free_port()
    # A log line per request would fill the unread pipe.
    with bed.process("scheduler", "api", API_PORT=str(port), SCHEDULER_JWT_KEY=KEY, LOG_LEVEL="warning", wait=False):
        _await(port)
        with closing(Browser(port, token)) as browser:
            paths = [
                "/", "/jobs", "/jobs?status=pending&sort=next", "/jobs?q=bench.job.17", "/jobs?q=Job number 77",
                "/jobs?job_type=bench.job.17", "/jobs?tenant=tenant-3", "/runs", "/runs?status=dead",
                "/runs?job_type=bench.job.17", "/runs?tenant=tenant-3", f"/runs?job_id={job}", f"/jobs/{job}",
                f"/runs/{event}", "/jobs/new", f"/jobs/{job}/edit", "/dead", "/delayed", "/processes", "/audit",
                "/jobs?late=1", "/tenants", "/load", "/load?job_type=bench.job.17", f"/runs/{event}/compare",
                f"/jobs/{job}/day?date={datetime.now(UTC):%Y-%m-%d}", "/find?q=number 77", "/find?q=payload.invoice:7",
            ]
            times = first_bytes(browser, paths)
            sizes = {path: transfer(browser, path) for path in paths}
            addresses = streams(browser, job, event)
        alone = statements(bed, WATCHED_SECONDS)
        with ExitStack() as open_ones:
            for address in addresses:
                open_ones.enter_context(closing(watch(port, token, address)))
            watched = statements(bed, WATCHED_SECONDS)
    p95 = {path: statistics.quantiles(path_times, n=20)[-1] for path, path_times in times.items()}
    slowest, largest = max(p95, key=p95.__getitem__), max(sizes, key=sizes.__getitem__)
    whole = f"with {JOBS:,} jobs and {RUNS:,} runs"
    rows = [
        report.limit(f"console: time to first byte, p95 of the slowest page, {whole}", p95[slowest], 100, "ms", slowest),
        report.limit("console: a page's whole transfer, first visit, the largest", sizes[largest], 200, "kB", largest),
        report.limit(f"console: queries per second added by {BROWSERS} open browsers", watched - alone, 2, "/s",
                     f"none open: {alone:.2f}/s"),
    ]
    report.write("console", rows, {"ttfb_p95_ms": p95, "transfer_kB": sizes, "alone": alone, "watched": watched})
    return rows


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(port: int) -> None:
    """Wait until the API responds."""
    limit = time.monotonic() + 60
    while True:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)
