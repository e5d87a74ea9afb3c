"""Run 100 interval jobs on 10 workers for an hour: no occurrence is missed, and none runs twice.

`make bench ARGS=intervals`, or `ARGS="intervals --minutes 1"`. The jobs run every 5 to 60 seconds. Handlers write each call
to a file, and the calls are compared with the instants that follow from the requests alone. They have `on_missed` `all`: with
`latest` a machine that is later than an interval would skip the older occurrence.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

from bench import report
from bench.day import role
from bench.interval_handlers import JOB_TYPE
from bench.servers import Bed
from scheduler.client import SchedulerClient
from scheduler.dev.servers import Stack
from scheduler.domain.instants import rfc3339

JOBS, WORKERS = 100, 10
EVERY = (5, 10, 15, 20, 30, 60)  # seconds
LEAD = timedelta(seconds=15)  # from the first request to the first run
SETTLE_SECONDS = 300.0


@dataclass(frozen=True)
class IntervalJob:
    """One job, as requested."""

    id: UUID
    every: timedelta
    starts_at: datetime

    def instants(self, end: datetime) -> Iterator[str]:
        """Yield the instants at which it is due, up to the end."""
        for number in range((end - self.starts_at) // self.every + 1):
            yield rfc3339(self.starts_at + number * self.every)


@dataclass(frozen=True)
class Account:
    """The calls, compared with the instants."""

    expected: int
    missed: list[tuple[str, str]]
    doubled: list[tuple[str, str]]
    unexpected: list[tuple[str, str]]


def account(jobs: list[IntervalJob], calls: list[tuple[str, str]], end: datetime) -> Account:
    """Return what is missed, doubled or unexpected. Calls after the end may be absent, but not doubled."""
    expected = {(str(job.id), at) for job in jobs for at in job.instants(end)}
    allowed = expected | {(str(job.id), at) for job in jobs for at in job.instants(end + timedelta(hours=1))}
    counted = Counter(calls)
    return Account(len(expected), sorted(expected - counted.keys()),
                   sorted(call for call, times in counted.items() if times > 1), sorted(counted.keys() - allowed))


def plan(now: datetime) -> list[IntervalJob]:
    """Return the jobs, spread over the shortest interval."""
    start = (now + LEAD).replace(microsecond=0)
    return [IntervalJob(uuid4(), timedelta(seconds=EVERY[number % len(EVERY)]),
                        start + number * timedelta(seconds=EVERY[0]) / JOBS) for number in range(JOBS)]


def wait_for(bed: Bed, condition: str, *values: object, seconds: float = SETTLE_SECONDS) -> None:
    """Wait until an SQL condition holds."""
    deadline = time.monotonic() + seconds
    while not bed.sql(f"SELECT {condition}", values)[0][0]:
        if time.monotonic() > deadline:
            raise TimeoutError(condition)
        time.sleep(0.5)


def lived(bed: Bed, calls: Path, minutes: float) -> tuple[list[IntervalJob], datetime]:
    """Run the jobs for some minutes, cancel them, and wait until every run has ended."""
    with ExitStack() as running:
        for name in ("consumer", "producer", "producer"):
            running.enter_context(role(bed, name))
        for _ in range(WORKERS):
            running.enter_context(role(bed, "worker", "--handlers", "bench.interval_handlers", BENCH_CALLS=str(calls)))
        client = SchedulerClient(bed.amqp_url)
        jobs = plan(datetime.now(UTC))
        for job in jobs:
            client.schedule(job.id, JOB_TYPE, run_at=job.starts_at, every=job.every, run={}, on_missed="all")
        end = jobs[0].starts_at + timedelta(minutes=minutes)
        wait_for(bed, "count(*) = %s FROM jobs", JOBS)
        time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds()))
        wait_for(bed, "bool_and(next_run_at > %s) FROM jobs", end)
        wait_for(bed, "NOT EXISTS (SELECT FROM runs WHERE due_at <= %s)", end)
        for job in jobs:
            client.cancel(job.id)
        wait_for(bed, "bool_and(status = 'cancelled') FROM jobs")
        client.close()
    return jobs, end


def run(stack: Stack, minutes: float = 60) -> list[report.Row]:
    """Run the jobs and compare the calls with the instants."""
    with tempfile.TemporaryDirectory() as folder, Bed(stack, "default") as bed:
        jobs, end = lived(bed, Path(folder), minutes)
        files = sorted(Path(folder).glob("*.calls"))
        lines = [line.split() for file in files for line in file.read_text(encoding="utf-8").splitlines()]
        attempts = bed.sql("SELECT count(*) FROM run_history WHERE due_at <= %s AND "
                           "(status <> 'succeeded' OR attempt <> 1)", (end,))[0][0]
    found = account(jobs, [(job, at) for job, at, _, _ in lines], end)
    late = sorted(float(called) - datetime.fromisoformat(at).timestamp() for _, at, _, called in lines)
    named = f"{JOBS} interval jobs, {WORKERS} workers, {minutes:g} minutes"
    rows = [
        report.limit(f"{named}: occurrences missed", len(found.missed), 0, "", f"of {found.expected:,}"),
        report.limit(f"{named}: occurrences run twice", len(found.doubled), 0, "", f"{len(files)} workers called a handler"),
        report.limit(f"{named}: calls at another instant", len(found.unexpected), 0, ""),
        report.limit(f"{named}: runs with more than one attempt, or without success", attempts, 0, ""),
        report.Row(f"{named}: due to the handler's call, p50", report.span(late[len(late) // 2]),
                   f"p99 {report.span(late[int(len(late) * 0.99)])}, longest {report.span(late[-1])}", None, "", None),
    ]
    report.write("intervals", rows, {"missed": found.missed, "doubled": found.doubled, "unexpected": found.unexpected})
    return rows
