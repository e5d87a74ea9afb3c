"""Soak test: memory, file descriptors and threads of every process at full speed."""

import os
import time
from statistics import median
from typing import NamedTuple

import psutil

from chaos.account import Result
from chaos.faults import fault
from chaos.world import World
from scheduler.dev.servers import Stack

# In the second half, when caches are full and the allocator's size is stable. The absolute part covers the
# fluctuation of a process without leaks.
ALLOWED_MIB = 2.0
ALLOWED_MIB_PER_MINUTE = 0.2
STEP = 500
CHURN = "chaos.churn"


class Sample(NamedTuple):
    """One process at one moment."""

    at: float
    mib: float
    fds: int
    threads: int


@fault("soak", "full speed: memory, file descriptors and threads stay flat (SOAK_SECONDS=600)")
def soak(stack: Stack, result: Result, scale: float) -> None:
    seconds = float(os.environ.get("SOAK_SECONDS") or 40 * scale)
    most = int(os.environ.get("SOAK_JOBS") or 3000)
    world = World(stack, one_shots=100, recurring=3, poison=0.05, counted_only=CHURN)
    try:
        world.start()
        jobs = full_speed(world, most)
        began, emitted = time.monotonic(), _emitted(world)
        samples = _sample(world, seconds)
        rate = (_emitted(world) - emitted) / (time.monotonic() - began)
        world.sql("DELETE FROM jobs WHERE job_type = %s", CHURN)
        result.notes.append(f"{seconds:.0f} s at {rate:,.0f} events/s ({jobs:,} jobs every second, plus the usual load)")
        for name, rows in samples.items():
            _check(result, name, rows[len(rows) // 2:])
        world.settle(result, within=120)
    finally:
        world.close(result)


def full_speed(world: World, most: int) -> int:
    """Add jobs that run every second until the machine is busy or there are `most`; return their number."""
    jobs = 0
    while jobs < most:
        world.sql("INSERT INTO jobs (id, job_type, every, starts_at, next_run_at) SELECT gen_random_uuid(), "
                  "%s, interval '1 second', now(), now() + random() * interval '1 second' "
                  "FROM generate_series(1, %s)", CHURN, STEP)
        jobs += STEP
        time.sleep(3)
        if _behind(world):
            # An overloaded machine shows nothing about leaks.
            world.sql("DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE job_type = %s LIMIT %s)",
                      CHURN, STEP if jobs > STEP else STEP // 2)
            return max(jobs - STEP, STEP // 2)
    time.sleep(3)
    return jobs


def _behind(world: World) -> bool:
    """Return whether due jobs or events are delayed."""
    [(late,)] = world.sql("SELECT count(*) FROM jobs WHERE status = 'pending' AND wake_at < now() - interval '1 second'")
    return late > 0 or world.host.records.transit > 1


def _emitted(world: World) -> float:
    return sum(replica.metric("jobs_due_total") for replica in world.producers)


def _sample(world: World, seconds: float) -> dict[str, list[Sample]]:
    processes = {replica.name: psutil.Process(replica.pid) for replica in world.supervisor.replicas}
    samples: dict[str, list[Sample]] = {name: [] for name in processes}
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        for name, process in processes.items():
            with process.oneshot():
                mib = process.memory_info().rss / 2**20
                samples[name].append(Sample(at, mib, process.num_fds(), process.num_threads()))
        time.sleep(1.0)
    return samples


def _check(result: Result, name: str, rows: list[Sample]) -> None:
    minutes = (rows[-1].at - rows[0].at) / 60
    growth = slope([(row.at / 60, row.mib) for row in rows])
    quarter = max(1, len(rows) // 4)
    fds, threads = (
        [median([row[n] for row in part]) for part in (rows[:quarter], rows[-quarter:])] for n in (2, 3)
    )
    result.notes.append(f"{name} {rows[-1].mib:.0f} MiB ({growth:+.2f} MiB/min), {fds[1]:.0f} fds ({fds[1] - fds[0]:+.0f}), "
                        f"{threads[1]:.0f} threads ({threads[1] - threads[0]:+.0f})")
    if growth * minutes > ALLOWED_MIB + ALLOWED_MIB_PER_MINUTE * minutes:
        result.failures.append(f"{name} grows by {growth:.2f} MiB per minute")
    if fds[1] > fds[0] + 1 or threads[1] > threads[0] + 1:
        result.failures.append(f"{name}: file descriptors {fds[0]:.0f} → {fds[1]:.0f}, "
                               f"threads {threads[0]:.0f} → {threads[1]:.0f}")


def slope(points: list[tuple[float, float]]) -> float:
    """Fit a line by least squares and return its slope."""
    x = sum(at for at, _ in points) / len(points)
    y = sum(value for _, value in points) / len(points)
    return sum((at - x) * (value - y) for at, value in points) / max(1e-9, sum((at - x) ** 2 for at, _ in points))
