"""Faults 7, 8 and 11: half-open networks, wrong clocks, poisoned commands."""

import contextlib
import shutil
import signal
import subprocess
import time
from itertools import count

from chaos.account import Result, lateness, share
from chaos.breaking_processes import LEAVE_SECONDS, NOTICE_SECONDS, within_takeover
from chaos.faults import fault
from chaos.load import RequestedJob
from chaos.proxy import Proxy
from chaos.replicas import wait_for
from chaos.world import World
from scheduler.dev.servers import Stack, apt

CUT_OFF = ("consumer-1", "producer-1")


def _half_open(stack: Stack, result: Result, dependency: str, scale: float) -> None:
    """Cut one consumer and one producer off from a server; the others reach it as before."""
    server = stack.postgres if dependency == "postgres" else stack.rabbitmq
    variable = "DATABASE_URL" if dependency == "postgres" else "AMQP_URL"
    proxy = Proxy(server.port)

    def behind_proxy(name: str, env: dict[str, str]) -> dict[str, str]:
        if name not in CUT_OFF:
            return env
        return env | {variable: env[variable].replace(f":{server.port}/", f":{proxy.port}/")}

    world = World(stack, replica_env=behind_proxy)
    try:
        world.start()
        time.sleep(3)
        proxy.freeze()
        began = time.monotonic()
        cut_off = [replica for replica in world.supervisor.replicas if replica.name in CUT_OFF]
        for replica in cut_off:
            wait_for(lambda replica=replica: dependency in replica.missing(), f"{replica.name} notices", NOTICE_SECONDS)
            result.notes.append(f"{replica.name} noticed within {time.monotonic() - began:.0f} s")
            if set(replica.missing()) - {dependency}:
                result.failures.append(f"{replica.name} names the wrong server: {replica.missing()}")
        if not all(replica.http("/livez")[0] == 200 for replica in cut_off):
            result.failures.append("a disconnected process counts as stuck")
        time.sleep(2 * scale)
        proxy.thaw()
        wait_for(world.supervisor.all_ready, "ready again", 60)
        time.sleep(2)
        # Disconnect again: a stop must not wait for a response that never arrives.
        proxy.freeze()
        time.sleep(1.5)
        world.supervisor.hold(cut_off[1])
        code, seconds = cut_off[1].end(signal.SIGTERM)
        result.notes.append(f"a disconnected producer exited within {seconds:.1f} s")
        if code != 0 or seconds > LEAVE_SECONDS:
            result.failures.append(f"{cut_off[1].name} exited {code} after {seconds:.1f} s while it was disconnected")
        proxy.thaw()
        world.supervisor.release(cut_off[1])
        world.settle(result, within=60)
        within_takeover(result)
    finally:
        proxy.thaw()
        world.close(result)
        proxy.close()


@fault("half-open-rabbitmq", "a proxy to RabbitMQ stops forwarding without closing")
def half_open_rabbitmq(stack: Stack, result: Result, scale: float) -> None:
    _half_open(stack, result, "rabbitmq", scale)


@fault("half-open-postgres", "a proxy to Postgres stops forwarding without closing")
def half_open_postgres(stack: Stack, result: Result, scale: float) -> None:
    _half_open(stack, result, "postgres", scale)


@fault("half-open-large", "the proxy stops in the middle of the 4 MB that a claim reads")
def half_open_large(stack: Stack, result: Result, _: float) -> None:
    proxy = Proxy(stack.postgres.port, receive_buffer=4096)

    def behind_proxy(name: str, env: dict[str, str]) -> dict[str, str]:
        url = env["DATABASE_URL"]
        near = url.replace(f":{stack.postgres.port}/", f":{proxy.port}/")
        return env | {"DATABASE_URL": near if name == "producer-1" else url}

    world = World(stack, replica_env=behind_proxy, one_shots=20, recurring=1, cancels=2)
    try:
        world.start()
        others = world.producers[1:]
        for replica in others:
            replica.send(signal.SIGSTOP)  # so that the first one claims all rows
        proxy.freeze_within_a_response(after=200_000)
        rows = world.sql(
            "INSERT INTO jobs (id, job_type, payload, next_run_at, starts_at) SELECT gen_random_uuid(), "
            "'chaos.large', json_build_object('x', random.text), now() + interval '1 second', now() "
            "FROM generate_series(1, 60), (SELECT string_agg(md5(random()::text), '') AS text FROM "
            "generate_series(1, 6250)) random RETURNING id::text, next_run_at"  # 200 kB, not compressible
        )
        for job_id, at in rows:
            world.host.records.jobs[job_id] = RequestedJob(job_id, [at], confirmed=True)
        wait_for(lambda: world.sql(HALF_SENT), "a half-sent claim", 30)
        began = time.monotonic()
        for replica in others:
            replica.send(signal.SIGCONT)
        wait_for(lambda: not world.sql("SELECT 1 FROM jobs WHERE job_type = 'chaos.large' AND status <> 'done' LIMIT 1"),
                 "its rows taken over", 60)
        result.notes.append(f"rows taken over after {time.monotonic() - began:.1f} s")
        proxy.thaw()
        world.settle(result, within=60)
        within_takeover(result)
    finally:
        proxy.thaw()
        world.close(result)
        proxy.close()


# Producer sessions whose claim the database has begun to send. Socket buffers may hold the rest of a response.
HALF_SENT = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
    "AND (wait_event = 'ClientWrite' OR state = 'idle in transaction') "
    "AND application_name ~ '^scheduler producer [0-9]' AND state_change < clock_timestamp() - interval '1 second'"
)


@fault("clock-skew", "processes under faketime, an hour fast and an hour slow")
def clock_skew(stack: Stack, result: Result, scale: float) -> None:
    if shutil.which("faketime") is None:
        apt.install(["faketime"], print)
    # Preload the library: under the program `faketime` signals would reach the wrong process.
    library = subprocess.run(["faketime", "-f", "+1s", "printenv", "LD_PRELOAD"], capture_output=True, text=True,
                             check=True).stdout.strip()
    offsets = {"consumer-1": "+3600s", "consumer-2": "-3600s", "producer-1": "+3600s", "producer-2": "-3600s"}

    def right_env(name: str, env: dict[str, str]) -> dict[str, str]:
        if name not in offsets:
            return env
        # Monotonic clocks have no time of day: do not change them.
        return env | {"LD_PRELOAD": library, "FAKETIME": "+0s", "DONT_FAKE_MONOTONIC": "1",
                      "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def wrong_env(name: str, env: dict[str, str]) -> dict[str, str]:
        return env | ({"FAKETIME": offsets[name]} if name in offsets else {})

    world = World(stack, replica_env=right_env)  # the library alone makes a process slower
    try:
        world.start()
        right = time.time()
        time.sleep(12 * scale)
        for replica in world.supervisor.replicas:
            replica.change(wrong_env)
            replica.end(signal.SIGTERM)
            wait_for(replica.ready, f"{replica.name} ready with a changed clock", 60)
        wrong = time.time()
        time.sleep(15 * scale)
        skewed = []
        for replica in world.producers:
            lines = [line for line in replica.log.read_text(encoding="utf-8").splitlines() if '"time"' in line]
            skewed.append(lines[-1][10:29])
        result.notes.append(f"the producers' own clocks in their logs: {', '.join(skewed)}")
        shares = [replica.metric("jobs_due_total") for replica in world.producers]
        if not all(shares):
            result.failures.append(f"a producer emitted nothing: {shares}")
        world.settle(result, within=30)
        off = [e for e in world.host.records.events if abs((e.emitted_at - e.received_at).total_seconds()) > 600]
        if off:
            result.failures.append(f"{len(off)} events with emitted_at by a wrong clock")
        usual = share(lateness(world.host.records, since=right + 1, until=right + 12 * scale), 0.9)
        late = share(lateness(world.host.records, since=wrong), 0.9)
        result.notes.append(f"nine in ten events at most {usual * 1000:.1f} ms late with right clocks, "
                            f"{late * 1000:.1f} ms with wrong ones")
        if more_than_usual(late, usual):
            result.failures.append(f"wrong clocks made events late: {usual:.2f} s before, {late:.2f} s with them")
    finally:
        world.close(result)


def more_than_usual(late: float, usual: float) -> bool:
    """Return whether events are later than in the run's quiet phase, by more than a busy machine explains."""
    return late > max(5 * usual, usual + 1.0)


@fault("poison", "one command in ten can never succeed")
def poison(stack: Stack, result: Result, scale: float) -> None:
    world = World(stack, one_shots=100, poison=0.12)
    try:
        world.start()
        time.sleep(15 * scale)
        world.settle(result, within=30)
        sent = world.host.records.poison
        rejections = (sum(replica.metric("scheduler_commands_rejected_total") for replica in world.consumers) for _ in count())
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: next(rejections) >= sent, "all rejected", 30)
        rejected = next(rejections)
        result.notes.append(f"{sent} poisoned commands, {rejected:.0f} rejected")
        if rejected != sent:
            result.failures.append(f"{sent} poisoned commands, but {rejected:.0f} rejected")
    finally:
        world.close(result)
