"""Zone data that changes in the middle of a run."""

import signal
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from chaos.account import Result
from chaos.faults import fault
from chaos.replicas import wait_for
from chaos.world import World
from scheduler.dev.servers import Stack
from scheduler.domain.recurrence.zone_data import PACKAGED

ZONE = "America/Vancouver"
# In the newer data, the clocks of the zone are an hour ahead: each wall time comes an hour sooner.
OLDER, NEWER = ("2099a", "Etc/GMT+8"), ("2099b", "Etc/GMT+7")
JOBS = 10_000
INSERT = """
INSERT INTO jobs (id, job_type, rrule, timezone, dtstart, starts_at, next_run_at, zone_version, start_source)
SELECT gen_random_uuid(), 'chaos.zones', 'FREQ=DAILY', %s, (due - interval '8 hours') AT TIME ZONE 'UTC', due, due,
       %s, 'run_at'
FROM (SELECT %s + n %% %s * interval '1 second' AS due FROM generate_series(1, %s) AS n) AS times
"""


def directory(where: str, version: str, like: str) -> str:
    """Write zone data in which the clocks of ZONE are those of another zone."""
    path = Path(where) / version
    (path / ZONE).parent.mkdir(parents=True)
    (path / ZONE).write_bytes(PACKAGED.file(like))
    (path / "+VERSION").write_text(version)
    return str(path)


@fault("zones", "newer zone data for one producer after the other, in the middle of 10,000 daily jobs")
def zones(stack: Stack, result: Result, scale: float) -> None:
    with tempfile.TemporaryDirectory() as where:
        older, newer = directory(where, *OLDER), directory(where, *NEWER)
        world = World(stack, env={"SCHEDULER_ZONEINFO_DIR": older})
        try:
            start = insert(world, seconds=round(40 * scale))
            world.start()
            time.sleep(max(0.0, (start - datetime.now(UTC)).total_seconds()) + 8 * scale)
            for producer in world.producers:
                producer.change(lambda _, env: env | {"SCHEDULER_ZONEINFO_DIR": newer})
                producer.end(signal.SIGKILL)
                wait_for(producer.ready, f"{producer.name} ready again", 60)
                time.sleep(4 * scale)
            planned = "SELECT count(*) FROM jobs WHERE timezone = %s AND zone_version = %s AND next_run_at > now()"
            wait_for(lambda: world.sql(planned, ZONE, NEWER[0]) == [(JOBS,)], "every job planned by the newer data", 120)
            world.settle(result, within=60)
            check(world, result)
        finally:
            world.close(result)


def insert(world: World, seconds: int) -> datetime:
    """Insert the jobs as the older data plans them, all within some seconds; return when the first is due."""
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=15)
    world.sql("INSERT INTO zone_files (version, name, data) VALUES (%s, %s, %s)", OLDER[0], ZONE,
              PACKAGED.file(OLDER[1]))
    world.sql(INSERT, ZONE, OLDER[0], start, seconds, JOBS)
    return start


def check(world: World, result: Result) -> None:
    """Check that each job emitted its one occurrence of the day, with one id, and comes an hour sooner tomorrow."""
    ids: dict[str, set[str]] = defaultdict(set)
    for event in list(world.host.records.events):
        ids[event.job_id].add(event.event_id)
    jobs = world.sql("SELECT id::text, dtstart + interval '1 day 7 hours' = next_run_at AT TIME ZONE 'UTC' FROM jobs "
                     "WHERE timezone = %s", ZONE)
    numbers = [len(ids.get(job_id, ())) for job_id, _ in jobs]
    result.notes.append(f"{sum(numbers):,} occurrences of {len(jobs):,} daily jobs")
    if min(numbers) < 1 or max(numbers) > 1:
        result.failures.append(f"{numbers.count(0)} wall times lost, {sum(n > 1 for n in numbers)} emitted twice")
    if wrong := sum(not sooner for _, sooner in jobs):
        result.failures.append(f"{wrong} jobs have another next run than the newer data gives")
