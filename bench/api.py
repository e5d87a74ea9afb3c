"""Benchmark the REST API with a million jobs: reads by id, list pages, new jobs, and its effect on emission."""

import contextlib
import fcntl
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from bench import report
from bench.servers import ROOT, Bed, Running, finished_in
from scheduler.api import cursors
from scheduler.api.tokens import issue
from scheduler.dev.servers import Stack
from scheduler.dev.servers.ports import free_ports
from scheduler.processes.consumer import BATCH

SECRET = "a secret of at least thirty-two bytes, for the bench"
ENV = {"SCHEDULER_JWT_KEY": SECRET, "SCHEDULER_API_RATE": "1000000"}
JOBS = 1_000_000


def token() -> str:
    return issue(SECRET, role="admin", sub="bench", tenant=None, lifetime=timedelta(hours=2))


def swallow(lines: int) -> None:
    """Discard the process's log without waking up for every line or blocking it."""
    fcntl.fcntl(lines, fcntl.F_SETPIPE_SZ, 1 << 20)
    with contextlib.suppress(OSError):  # closed
        while os.read(lines, 1 << 20):
            time.sleep(0.25)


@contextlib.contextmanager
def serving(bed: Bed) -> Iterator[str]:
    """Run one `scheduler api`; yield its URL."""
    [port] = free_ports(1)
    running = Running([sys.executable, "-m", "scheduler", "api"], bed, ENV | {"API_PORT": str(port)})
    try:
        running.ready()
        threading.Thread(target=swallow, args=(running.popen.stderr.fileno(),), daemon=True).start()
        yield f"http://127.0.0.1:{port}"
    finally:
        running.popen.terminate()
        running.popen.wait()


@contextlib.contextmanager
def bare(bed: Bed) -> Iterator[str]:
    """Run the yardstick; yield its URL."""
    [port] = free_ports(1)
    process = subprocess.Popen([sys.executable, "-m", "bench.bare_api", str(port)], cwd=ROOT,
                               env=os.environ | {"DATABASE_URL": bed.database_url})
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def load(kind: str, url: str, paths: list[str], **options: float) -> subprocess.Popen:
    """Start the load in a separate process."""
    with tempfile.NamedTemporaryFile("w", suffix=".paths", delete=False) as file:
        file.write("\n".join(paths))
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    return subprocess.Popen([sys.executable, "-m", "bench.http_load", kind, url, file.name, "--token", token(), *arguments],
                            cwd=ROOT, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen) -> dict:
    output = json.loads(process.communicate()[0])
    Path(process.args[5]).unlink()
    assert not output["failures"], output["failures"]
    return output


def million(bed: Bed) -> None:
    """Fill with jobs of four statuses, a hundred types, a type with five jobs, and two tenants, created one per second."""
    bed.fill(JOBS, "now() + interval '10 years'", created_at="now() - n * interval '1 second'",
             job_type=f"CASE WHEN n % {JOBS // 5} = 7 THEN 'rare.type' ELSE 'type.' || n % 100 END",
             tenant="CASE WHEN n % 10 = 0 THEN 'acme' ELSE 'default' END",
             status="(ARRAY['pending','pending','pending','paused','done','cancelled'])[1 + n % 6]::job_status")
    bed.analyze()


def get(bed: Bed, url: str) -> float:
    """Return the p99 in ms of reading a job by id at 200 requests per second."""
    ids = [str(row[0]) for row in bed.sql("SELECT id FROM jobs TABLESAMPLE SYSTEM (1) LIMIT 2000")]
    paths = [f"/api/v1/jobs/{job_id}" for job_id in ids]
    result(load("paced", url, paths, rate=200, seconds=2))  # the first seconds warm the caches
    ms = result(load("paced", url, paths, rate=200, seconds=15))["ms"]
    return ms[int(len(ms) * 0.99)]


def page(url: str, query: str) -> float:
    """Return the median milliseconds of one page."""
    return statistics.median(result(load("paced", url, [f"/api/v1/jobs?limit=50&{query}"], rate=25, seconds=1))["ms"])


def seldom(bed: Bed, url: str) -> dict[str, tuple[float, float]]:
    """Return the times of the first and the last page for filters that match few or no jobs."""
    [(at, job)] = bed.sql("SELECT created_at, id FROM jobs ORDER BY created_at, id OFFSET 60 LIMIT 1")
    last = cursors.write("jobs", at, str(job))
    filters = {}
    for query in ("job_type=rare.type", "job_type=rare.type&status=paused", "job_type=type.6&status=paused", "job_type=none",
                  "tenant=none", "priority=high", "priority=low&status=done", "q=rare", "q=none", "q=01234567"):
        filters[query] = (page(url, query), page(url, f"{query}&after={last}"))
        print(f"    {query:<35} first {filters[query][0]:.2f} ms, last {filters[query][1]:.2f} ms")
    return filters


def pages(bed: Bed, url: str) -> dict[str, tuple[float, float]]:
    """Return the times of the first and the last page by filter."""
    medians = {}
    for query, where in (("", "true"), ("status=done", "status = 'done'"), ("job_type=type.7", "job_type = 'type.7'"),
                         ("tenant=acme", "tenant = 'acme'"), ("q=type.4", "job_type LIKE 'type.4%'")):
        [(at, job)] = bed.sql(f"SELECT created_at, id FROM jobs WHERE {where} ORDER BY created_at, id OFFSET 60 LIMIT 1")
        last = cursors.write("jobs", at, str(job))
        times = [(page(url, query), page(url, f"{query}&after={last}")) for _ in range(2)]
        medians[query or "all"] = tuple(statistics.median(column) for column in zip(*times, strict=True))
        print(f"    {query or 'all':<20} first {medians[query or 'all'][0]:.2f} ms, last {medians[query or 'all'][1]:.2f} ms")
    return medians


def post(bed: Bed, rounds: int) -> dict[str, list[float]]:
    """Return the jobs created per second by the API and by the bare route."""
    with serving(bed) as ours, bare(bed) as plain:
        return report.interleaved(rounds, {
            "bare FastAPI route": lambda: result(load("flat_out", plain, ["/jobs"], seconds=3))["rate"],
            "POST /jobs": lambda: result(load("flat_out", ours, ["/api/v1/jobs"], seconds=3))["rate"],
        })


def emitting(bed: Bed, url: str, rounds: int, count: int = 30_000) -> dict[str, list[float]]:
    """Return the events emitted per second with and without 100 API requests per second."""
    def drained() -> float:
        """Let `count` jobs fall due at once with one producer."""
        bed.sql("DELETE FROM jobs WHERE job_type = 'bench.due'")
        # As consumers store them: one batch per moment.
        bed.fill(count, "now() + interval '1 hour'", job_type="'bench.due'",
                 created_at=f"now() - n / {BATCH} * interval '10 milliseconds'")
        bed.analyze()
        with bed.process("scheduler", "producer"):
            # As in bench/emit.py: an UPDATE, so that the rows are equally old in both.
            due = "now() + interval '8 seconds'"  # vacuuming a million rows takes time
            bed.sql(f"UPDATE jobs SET next_run_at = {due}, starts_at = {due} WHERE job_type = 'bench.due'")
            bed.sql("VACUUM jobs")
            bed.sql("SELECT pg_sleep_until(min(next_run_at)) FROM jobs WHERE job_type = 'bench.due'")
            started = time.monotonic()
            condition = "NOT EXISTS (SELECT 1 FROM jobs WHERE status = 'pending' AND wake_at <= now())"
            rate = count / finished_in(bed, condition, started)
        bed.purge("mainapp_due")
        return rate

    def with_requests() -> float:
        job = bed.sql("SELECT id FROM jobs WHERE job_type <> 'bench.due' LIMIT 1")[0][0]
        requests = load("paced", url, ["/api/v1/jobs?limit=20", "/api/v1/stats", f"/api/v1/jobs/{job}"], rate=100, seconds=90)
        try:
            return drained()
        finally:
            requests.terminate()
            requests.wait()

    return report.interleaved(rounds, {"alone": drained, "with 100 requests/s": with_requests})


def run(stack: Stack, rounds: int = 3) -> list[report.Row]:
    """Measure all of it."""
    with Bed(stack) as bed:
        million(bed)
        with serving(bed) as url:
            p99 = get(bed, url)
            listed = pages(bed, url)
            rare = seldom(bed, url)
        posted = post(bed, rounds)
        with serving(bed) as url:
            emitted = emitting(bed, url, rounds)
    rate, out = report.medians(posted), report.medians(emitted)
    worst = max(listed, key=lambda name: listed[name][1] / listed[name][0])
    first, last = listed[worst]
    slowest = max(rare, key=lambda name: max(rare[name]))
    rows = [
        report.limit(f"GET a job of {JOBS:,}, p99 at 200 requests/s", p99, 15, "ms"),
        report.at_most(f"the last page of {JOBS:,} jobs ({worst})", last, first, "the first", 1.5, " ms"),
        report.limit(f"rare or absent filter values among {JOBS:,} jobs ({slowest})", max(rare[slowest]), 20, "ms"),
        report.at_least("POST a job", rate["POST /jobs"], rate["bare FastAPI route"], "a bare FastAPI route", 0.5),
        report.at_least("one-shot events during 100 requests/s", out["with 100 requests/s"], out["alone"], "alone", 0.85),
    ]
    report.write("api", rows, {"pages ms": listed, "seldom ms": rare, "post": posted, "emit": emitted})
    return rows
