"""Postgres faults: restarts, crashes, terminated sessions, no connections, dead rows, pruning and bursts."""

import contextlib
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime

import psycopg2

from chaos.account import Result, lateness, share
from chaos.breaking_networks import more_than_usual
from chaos.faults import fault
from chaos.load import RequestedJob
from chaos.replicas import wait_for
from chaos.world import World
from scheduler.dev.servers import Stack

OUR_SESSIONS = "datname = current_database() AND application_name LIKE 'scheduler %'"


def _under_load(stack: Stack, result: Result, break_it: Callable[[World], None], scale: float) -> None:
    world = World(stack)
    try:
        world.start()
        time.sleep(3)
        break_it(world)
        time.sleep(4 * scale)
        world.settle(result, within=60)
    finally:
        world.close(result)


@fault("postgres-restart", "Postgres restarted (fast)")
def restart(stack: Stack, result: Result, scale: float) -> None:
    def break_it(_: World) -> None:
        stack.postgres.stop("fast")
        time.sleep(3 * scale)
        stack.postgres.start()

    _under_load(stack, result, break_it, scale)


@fault("postgres-kill", "Postgres killed (immediate, then kill -9) and started")
def kill(stack: Stack, result: Result, scale: float) -> None:
    def break_it(_: World) -> None:
        stack.postgres.restart("immediate")
        time.sleep(3 * scale)
        stack.postgres.kill()
        stack.postgres.start()

    _under_load(stack, result, break_it, scale)


@fault("postgres-sessions", "all our sessions terminated, ten times")
def sessions(stack: Stack, result: Result, scale: float) -> None:
    def break_it(world: World) -> None:
        for _ in range(10):
            world.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OUR_SESSIONS}")
            time.sleep(1.2 * scale)

    _under_load(stack, result, break_it, scale)


@fault("postgres-full", "sessions terminated while all server connections are in use")
def full(stack: Stack, result: Result, scale: float) -> None:
    def break_it(world: World) -> None:
        with closing(psycopg2.connect(world.database_url)) as control, contextlib.ExitStack() as connections:
            control.autocommit = True
            cursor = control.cursor()
            refused = 0
            end = time.monotonic() + 10 * scale
            while time.monotonic() < end:
                cursor.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OUR_SESSIONS}")
                with contextlib.suppress(psycopg2.OperationalError):
                    while True:
                        connections.enter_context(closing(psycopg2.connect(world.database_url)))
                refused += 1
                time.sleep(0.05)
            held = len(connections._exit_callbacks)  # noqa: SLF001 - a count for the notes
            result.notes.append(f"{held} connections in use")
            unready = [replica.name for replica in world.supervisor.replicas if not replica.ready()]
            if not unready:
                result.failures.append("every process reported ready without a database")

    _under_load(stack, result, break_it, scale)


@fault("pinned-snapshot", "another client's old snapshot pins dead rows while jobs churn")
def pinned(stack: Stack, result: Result, scale: float) -> None:
    world = World(stack, one_shots=40)
    try:
        world.start()
        world.sql("INSERT INTO jobs (id, job_type, every, starts_at, next_run_at) SELECT gen_random_uuid(), "
                  "'chaos.churn', interval '1 second', now(), now() + random() * interval '1 second' "
                  "FROM generate_series(1, 1000)")
        time.sleep(4)
        started = time.time()
        before, entries_before = _claim_ms(world, 6)
        pinned_since = time.time()
        with closing(psycopg2.connect(world.database_url)) as old:
            old.set_session(isolation_level="REPEATABLE READ")
            old.cursor().execute("SELECT count(*) FROM jobs")
            time.sleep(22 * scale)
            during, many = _claim_ms(world, 4)
            [(dead,)] = world.sql("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'jobs'")
        world.sql("DELETE FROM jobs WHERE job_type = 'chaos.churn'")
        result.notes.append(f"{dead:,} dead rows; a claim took {before:.2f} ms before and {during:.2f} ms with them")
        result.notes.append(f"an index scan read {entries_before:.0f} entries before and {many:.0f} with them")
        # A busy machine may slow a claim down, but does not change how much it reads.
        if during > max(10 * before, 50) and many > 10 * entries_before:
            result.failures.append(f"claims slowed down from {before:.2f} to {during:.2f} ms")
        world.settle(result, within=60)
        usual = share(lateness(world.host.records, since=started, until=pinned_since), 0.9)
        late = share(lateness(world.host.records, since=pinned_since), 0.9)
        result.notes.append(f"nine in ten events at most {usual * 1000:.1f} ms late before, {late * 1000:.1f} ms then")
        if more_than_usual(late, usual):
            result.failures.append(f"events became later: {usual:.2f} s before, {late:.2f} s with old rows pinned")
    finally:
        world.close(result)


def _claim_ms(world: World, seconds: float) -> tuple[float, float]:
    """Return the mean milliseconds per claim and the mean index entries per scan, over some seconds."""
    def totals() -> list[float]:
        claim_totals = [sum(replica.metric(f"scheduler_loop_seconds_{part}", phase="claim") for replica in world.producers)
                 for part in ("sum", "count")]
        [read] = world.sql("SELECT idx_tup_read, idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'jobs_due'")
        return [*claim_totals, *map(float, read)]

    before = totals()
    time.sleep(seconds)
    seconds_claiming, count, entries, scans = (after - then for after, then in zip(totals(), before, strict=True))
    return seconds_claiming / max(1.0, count) * 1000, entries / max(1.0, scans)


@fault("pruning", "200,000 finished jobs past their retention are pruned while others fall due")
def pruning(stack: Stack, result: Result, scale: float) -> None:
    world = World(stack)
    old = int(200_000 * scale)
    blocked = 0

    def pruned() -> bool:
        nonlocal blocked
        blocked += world.sql(BLOCKED_CLAIMS)[0][0]
        # Use the replicas' counters: a query would scan all dead rows, ten times a second.
        return sum(replica.metric("scheduler_jobs_pruned_total") for replica in world.supervisor.replicas) >= old

    try:
        world.sql("INSERT INTO jobs (id, job_type, status, finished_at) SELECT gen_random_uuid(), 'chaos.old', 'done', "
                  "now() - interval '60 days' FROM generate_series(1, %s)", old)
        world.start()
        began = time.time()
        wait_for(pruned, "all pruned", 240)
        quiet = time.time()
        result.notes.append(f"{old:,} rows pruned, the last {quiet - began:.0f} s after all were ready")
        time.sleep(15 * scale)
        world.settle(result, within=60)
        late = share(lateness(world.host.records, since=began, until=quiet), 0.9)
        usual = share(lateness(world.host.records, since=quiet), 0.9)
        result.notes.append(f"nine in ten events at most {usual * 1000:.1f} ms late without pruning, {late * 1000:.1f} ms "
                            f"with it; claims blocked by the pruning {blocked} times")
        if blocked or more_than_usual(late, usual):
            result.failures.append(f"pruning blocked claims {blocked} times; {usual:.2f} s late without, {late:.2f} s with it")
    finally:
        world.close(result)


# Working sessions that wait for a lock of a maintenance session.
BLOCKED_CLAIMS = (
    "SELECT count(*) FROM pg_stat_activity AS work, LATERAL unnest(pg_blocking_pids(work.pid)) AS blocking (pid) "
    "JOIN pg_stat_activity AS maintenance USING (pid) WHERE work.datname = current_database() "
    "AND work.wait_event_type = 'Lock' AND work.application_name ~ '^scheduler (producer [0-9]|consumer$)' "
    "AND maintenance.application_name ~ ' maintenance$'"
)


@fault("burst", "100,000 jobs due in the same second")
def burst(stack: Stack, result: Result, scale: float) -> None:
    world = World(stack, one_shots=40, recurring=1, cancels=5)
    count = int(100_000 * scale)
    try:
        world.start()
        time.sleep(2)
        due = datetime.fromtimestamp(int(time.time()) + 10, UTC)
        rows = world.sql(
            "WITH made AS (INSERT INTO jobs (id, job_type, next_run_at, starts_at, requested_at) SELECT "
            "gen_random_uuid(), 'chaos.burst', %s + (n %% 1000) * interval '1 millisecond', now(), now() "
            "FROM generate_series(1, %s) AS n RETURNING id::text, next_run_at) SELECT id, next_run_at FROM made",
            due, count,
        )
        for job_id, at in rows:
            world.host.records.jobs[job_id] = RequestedJob(job_id, [at], confirmed=True)
        shares = {replica.name: replica.metric("jobs_due_total") for replica in world.producers}
        left = due.timestamp() - time.time()
        result.notes.append(f"{count:,} rows in place {left:.1f} s before they are due")
        began = time.monotonic() + max(0.0, left)
        wait_for(lambda: sum(e.metric("jobs_due_total") for e in world.producers) - sum(shares.values()) >= count,
                 "the burst drained", 150)
        seconds = time.monotonic() - began
        shares = {replica.name: replica.metric("jobs_due_total") - shares[replica.name] for replica in world.producers}
        total = sum(shares.values())
        parts = ", ".join(f"{share / total:.0%}" for share in shares.values())
        result.notes.append(f"drained in {seconds:.1f} s; shares of the producers {parts}")
        if min(shares.values()) < total * 0.05:
            result.failures.append(f"a producer was starved: {parts}")
        world.settle(result, within=60)
        # Commands that wait for the burst would be stored only after it.
        if result.slowest_command > max(5.0, seconds / 2):
            result.failures.append(f"a command waited {result.slowest_command:.1f} s to be stored")
    finally:
        world.close(result)
