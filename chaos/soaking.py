"""A soak: memory, file descriptors and threads of every process over a long time at full speed."""

import os
import time

import psutil

from chaos.account import Result
from chaos.faults import fault
from chaos.world import World
from scheduler.dev.servers import Stack

# Over a minute caches still fill and the allocator still grows: only a long soak tells a leak from that.
LONG_SECONDS = 300.0
ALLOWED_MIB_PER_MINUTE = {True: 0.2, False: 10.0}


@fault("soak", "full speed for a while: memory, file descriptors and threads stay flat (SOAK_SECONDS=600)")
def soak(stack: Stack, result: Result, scale: float) -> None:
    seconds = float(os.environ.get("SOAK_SECONDS") or 40 * scale)
    jobs = int(os.environ.get("SOAK_JOBS") or 600)
    world = World(stack, one_shots=100, recurring=3, poison=0.05)
    try:
        world.start()
        world.sql("INSERT INTO jobs (id, job_type, every, starts_at, next_run_at) SELECT gen_random_uuid(), "
                  "'chaos.churn', interval '1 second', now(), now() + random() * interval '1 second' "
                  "FROM generate_series(1, %s)", jobs)
        time.sleep(8)  # what is allocated once is allocated by now
        samples = _sample(world, seconds)
        emitted = sum(each.metric("jobs_due_total") for each in world.producers)
        world.sql("DELETE FROM jobs WHERE job_type = 'chaos.churn'")
        result.notes.append(f"{seconds:.0f} s, {emitted:,.0f} events")
        allowed = ALLOWED_MIB_PER_MINUTE[seconds >= LONG_SECONDS]
        for name, rows in samples.items():
            slope = _slope([(at, mib) for at, mib, _, _ in rows]) * 60
            fds, threads = ([row[n] for row in rows] for n in (2, 3))
            result.notes.append(f"{name} {rows[-1][1]:.0f} MiB ({slope:+.2f} MiB/min), {fds[-1]} fds, {threads[-1]} threads")
            if slope > allowed:
                result.failures.append(f"{name} grows by {slope:.2f} MiB a minute")
            if max(fds[-5:]) > max(fds[:5]) + 3 or max(threads[-5:]) > max(threads[:5]) + 3:
                result.failures.append(f"{name}: file descriptors {fds[0]} → {fds[-1]}, threads {threads[0]} → {threads[-1]}")
        world.settle(result, within=90)
    finally:
        world.close(result)


def _sample(world: World, seconds: float) -> dict[str, list[tuple[float, float, int, int]]]:
    processes = {each.name: psutil.Process(each.pid) for each in world.supervisor.replicas}
    samples: dict[str, list[tuple[float, float, int, int]]] = {name: [] for name in processes}
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        for name, process in processes.items():
            mib = process.memory_info().rss / 2**20
            samples[name].append((at, mib, process.num_fds(), process.num_threads()))
        time.sleep(1.0)
    return samples


def _slope(points: list[tuple[float, float]]) -> float:
    """Fit a line by least squares and return its slope."""
    points = points[len(points) // 3:]
    x = sum(at for at, _ in points) / len(points)
    y = sum(value for _, value in points) / len(points)
    return sum((at - x) * (value - y) for at, value in points) / max(1e-9, sum((at - x) ** 2 for at, _ in points))
