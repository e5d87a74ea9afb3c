"""The console over a large database: time to first byte, a page's whole transfer, and what fifty browsers cost."""

import gzip
import http.client
import re
import socket
import statistics
import time
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta

from bench import report, runs
from bench.servers import Bed
from scheduler.api.console.session import COOKIE
from scheduler.api.tokens import issue
from scheduler.dev.servers import Stack

KEY = "a secret for the bench of thirty-two bytes"
JOBS, RUNS, HISTORY_DAYS = 1_000_000, 2_000_000, 12
TURNS = 25
BROWSERS = 50
WATCHED_SECONDS = 20.0


class Browser:
    """Asks for pages as a browser would, on one connection."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Cookie": f"{COOKIE}={token}", "Accept-Encoding": "gzip"}

    def get(self, path: str) -> tuple[float, bytes, bytes]:
        """Return the seconds to the first byte, what came over the line, and what it says."""
        started = time.perf_counter()
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()  # returns with the first byte of the answer
        first = time.perf_counter() - started
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:300])
        head = sum(len(name) + len(value) + 4 for name, value in answer.getheaders())
        said = gzip.decompress(body) if answer.getheader("Content-Encoding") == "gzip" else body
        return first, body + b" " * head, said

    def close(self) -> None:
        self._connection.close()


def fill(bed: Bed, jobs_count: int = JOBS, runs_count: int = RUNS) -> tuple[str, str]:
    """Load the jobs and the runs; return one job with runs, and one of them."""
    bed.fill(jobs_count, "now() + interval '1 hour' + n * interval '1 second'", every="interval '1 day'",
             job_type="'bench.job.' || n % 200", name="'Job number ' || n", run="'{}'::json",
             created_at="now() - n * interval '1 second'", tenant="'tenant-' || n % 50")
    jobs = [row[0] for row in bed.sql("SELECT id FROM jobs LIMIT 1000")]
    bed.sql("CREATE TABLE chosen AS SELECT (row_number() OVER ())::int - 1 AS place, id "
            "FROM unnest(%s::uuid[]) AS id; CREATE UNIQUE INDEX ON chosen (place)", (jobs,))
    for day in range(1, HISTORY_DAYS + 2):  # as they were made day by day
        first = datetime.now(UTC).date() - timedelta(days=day)
        bed.sql(f"CREATE TABLE run_history_{first:%Y%m%d} PARTITION OF run_history "
                f"FOR VALUES FROM ('{first} 00:00+00') TO ('{first + timedelta(days=1)} 00:00+00')")
    step = f"n * interval '{HISTORY_DAYS * 86400 / runs_count} seconds'"
    runs.fill(bed, runs_count, "run_history", job_id="(SELECT id FROM chosen WHERE place = n % 1000)",
              due_at=f"now() - {step}", finished_at=f"now() - {step}", started_at=f"now() - {step}",
              job_type="'bench.job.' || n % 200", tenant="'tenant-' || n % 50",
              status="(CASE WHEN n % 50 = 0 THEN 'dead' ELSE 'succeeded' END)::run_status")
    bed.sql("VACUUM ANALYZE jobs")
    bed.sql("ANALYZE run_history")
    bed.sql("CHECKPOINT")
    return str(jobs[7]), str(bed.sql("SELECT event_id FROM run_history WHERE job_id = %s LIMIT 1", (jobs[7],))[0][0])


def first_bytes(browser: Browser, paths: list[str]) -> dict[str, list[float]]:
    """Return the milliseconds to the first byte of each page, many times over, the pages in turns."""
    found: dict[str, list[float]] = {path: [] for path in paths}
    for turn in range(TURNS + 2):
        for path in paths:
            first, _, _ = browser.get(path)
            if turn >= 2:  # the first turns fill caches
                found[path].append(first * 1000)
    return found


def transfer(browser: Browser, path: str) -> float:
    """Return the kB of a first visit: the page and every file that it names."""
    _, line, said = browser.get(path)
    files = set(re.findall(rb"/static/[\w.-]+", said))
    return (len(line) + sum(len(browser.get(file.decode())[1]) for file in files)) / 1000


def statements(bed: Bed, seconds: float) -> float:
    """Return how many statements a second the API's sessions execute: each is a transaction of its own."""
    count = "SELECT sum(xact_commit) FROM pg_stat_database WHERE datname = current_database()"
    bed.sql("SELECT pg_stat_clear_snapshot()")
    before, started = int(bed.sql(count)[0][0]), time.monotonic()
    time.sleep(seconds)
    return (int(bed.sql(count)[0][0]) - before - 1) / (time.monotonic() - started)


def watch(port: int, token: str) -> socket.socket:
    """Open the overview's stream and leave it open."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=60)
    opened.sendall(f"GET /live?topic=overview HTTP/1.1\r\nHost: x\r\nCookie: {COOKIE}={token}\r\n\r\n".encode())
    assert b"200 OK" in opened.recv(4096)
    return opened


def run(stack: Stack) -> list[report.Row]:
    """Load the database and measure the three figures."""
    with Bed(stack) as bed:
        started = time.monotonic()
        job, event = fill(bed)
        print(f"    loaded in {time.monotonic() - started:.0f} s", flush=True)
        return measure(bed, job, event)


def measure(bed: Bed, job: str, event: str) -> list[report.Row]:
    """Measure on a database that is loaded."""
    token = issue(KEY, role="admin", sub="bench", tenant=None, lasts=timedelta(hours=1))
    port = _free_port()
    # A line of its log for each request would fill the pipe, which nobody reads.
    with bed.process("scheduler", "api", API_PORT=str(port), SCHEDULER_JWT_KEY=KEY, LOG_LEVEL="warning", wait=False):
        _await(port)
        with closing(Browser(port, token)) as browser:
            paths = ["/", "/jobs", "/jobs?status=pending&sort=next", "/jobs?q=bench.job.17", "/runs",
                     "/runs?status=dead", f"/jobs/{job}", f"/runs/{event}", "/jobs/new", f"/jobs/{job}/edit",
                     "/processes", "/audit"]
            times = first_bytes(browser, paths)
            sizes = {path: transfer(browser, path) for path in paths}
        alone = statements(bed, WATCHED_SECONDS)
        with ExitStack() as open_ones:
            for _ in range(BROWSERS):
                open_ones.enter_context(closing(watch(port, token)))
            watched = statements(bed, WATCHED_SECONDS)
    p95 = {path: statistics.quantiles(found, n=20)[-1] for path, found in times.items()}
    slowest, largest = max(p95, key=p95.__getitem__), max(sizes, key=sizes.__getitem__)
    whole = f"with {JOBS:,} jobs and {RUNS:,} runs"
    rows = [
        report.limit(f"console: time to first byte, p95 of the slowest page, {whole}", p95[slowest], 100, "ms", slowest),
        report.limit("console: a page's whole transfer, first visit, the largest", sizes[largest], 200, "kB", largest),
        report.limit(f"console: queries a second that {BROWSERS} open browsers add", watched - alone, 2, "/s",
                     f"none open: {alone:.2f}/s"),
    ]
    report.write("console", rows, {"ttfb_p95_ms": p95, "transfer_kB": sizes, "alone": alone, "watched": watched})
    return rows


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(port: int) -> None:
    """Wait until the API answers."""
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
