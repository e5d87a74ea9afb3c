"""Rolling upgrade and rollback under load: both releases run on the new schema."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from chaos.account import Result
from chaos.faults import fault
from chaos.releases import PREVIOUS, build_release
from chaos.replicas import ROOT, Replica, wait_for
from chaos.world import World
from scheduler.dev.servers import Stack
from scheduler.postgres.migrate import migrate


@fault("rolling-upgrade", "the previous release replaced by this one under load, rolled back, and upgraded again")
def rolling_upgrade(stack: Stack, result: Result, scale: float) -> None:
    commit = os.environ.get("PREVIOUS", PREVIOUS)
    previous = build_release(commit)
    # Send results too, if the previous release supports them.
    tracked = 10 if list(previous.glob("scheduler/sql/migrations/*_runs.sql")) else 0
    world = World(stack, schema=lambda url: migrate_with(previous, url), code=previous, tracked=tracked)
    try:
        world.start()
        time.sleep(3 * scale)
        applied = migrate(world.database_url)
        time.sleep(3 * scale)
        for code in (ROOT, previous, ROOT):
            roll(world, code, result, pause=2 * scale)
        world.settle(result, within=30)
        if tracked:
            all_succeeded(world, result)
        result.notes.append(f"{commit}, {len(applied)} migrations under load, 3 rolls of {len(world.supervisor.replicas)}")
        for replica in world.supervisor.replicas:
            result.failures += errors(replica, previous)
        if result.duplicates:
            result.failures.append(f"{result.duplicates} duplicates in a rolling upgrade")
    finally:
        world.close(result)


def all_succeeded(world: World, result: Result) -> None:
    """Check that every run has ended with its worker's result."""
    try:
        wait_for(lambda: world.sql("SELECT count(*) FROM runs") == [(0,)], "every run ended", 60)
    except TimeoutError as error:
        result.failures.append(str(error))
    ended = dict(world.sql("SELECT status::text, count(*) FROM run_history GROUP BY 1"))
    result.notes.append(f"runs: {ended}")
    if set(ended) != {"succeeded"}:
        result.failures.append(f"runs did not end with their results: {ended}")


def migrate_with(code: Path, url: str) -> None:
    """Create the schema of a release with its own code."""
    env = os.environ | {"DATABASE_URL": url, "PYTHONPATH": str(code)}
    subprocess.run([sys.executable, "-m", "scheduler", "migrate"], env=env, cwd=code, check=True,
                   stdout=subprocess.DEVNULL)


def roll(world: World, code: Path, result: Result, pause: float) -> None:
    """Replace the processes one by one with that release. Halfway, both releases run."""
    for number, replica in enumerate(world.supervisor.replicas, 1):
        replica.code = code
        exit_code, _ = replica.end(signal.SIGTERM)
        if exit_code != 0:
            result.failures.append(f"{replica.name} exited {exit_code}")
        wait_for(replica.ready, f"{replica.name} ready again", 60)
        time.sleep(pause if number in (2, len(world.supervisor.replicas)) else 0.3)
        if number == 2:
            seen = world.sql("SELECT DISTINCT version FROM replicas WHERE last_seen_at > now() - interval '10 seconds'")
            if len(seen) != 2:
                result.failures.append(f"both releases should run, but these do: {seen}")


def errors(replica: Replica, code: Path) -> list[str]:
    """Return the errors that processes of that release logged in this slot."""
    errors_found = []
    for release, begin, end in replica.spans():
        text = replica.log.read_bytes()[begin:end].decode(errors="replace")
        errors_found += [f"{replica.name} of {release.name}: {line[:300]}" for line in text.splitlines()
                  if release == code and _is_error(line)]
    return errors_found


def _is_error(line: str) -> bool:
    try:
        return json.loads(line)["level"] in ("warning", "error")
    except (ValueError, KeyError):
        return bool(line.strip())  # a traceback or other output
