"""Kill, freeze and disconnect workers while their commands run."""

import json
import random
import signal
import time
from pathlib import Path
from uuid import uuid4

import pika

from chaos.account import Result
from chaos.faults import fault
from chaos.proxy import Proxy
from chaos.replicas import Replica, Supervisor, wait_for
from chaos.world import connected
from scheduler.dev.servers import Stack
from scheduler.postgres.migrate import migrate
from scheduler.rabbit import topology

WORKERS, CUT_OFF = 10, 3
JOBS = 100
SPACING = 12.0  # seconds, standing for a minute
# The kernel releases the lock when the last process of a command ends: a held lock means two concurrent commands.
COMMAND = """exec 9>>"lock.$SCHEDULER_JOB_ID"
flock -n 9 || echo "$SCHEDULER_JOB_ID" >> overlaps
echo "$SCHEDULER_EVENT_ID" >> ran
sleep 0.5"""
POLICY = {"timeout": 60, "max_attempts": 50, "backoff": "fixed", "delay": 0}


@fault("workers", f"{WORKERS} workers killed, frozen and disconnected while {JOBS} jobs run commands")
def workers(stack: Stack, result: Result, scale: float) -> None:
    folder = stack.directory / "commands"
    folder.mkdir(exist_ok=True)
    database_url, amqp_url = stack.create_database(), stack.create_vhost()
    migrate(database_url)
    topology.declare(amqp_url, queue_type="quorum", due_queue_type="default")
    proxy = Proxy(stack.rabbitmq.port)
    supervisor = Supervisor(_replicas(stack, folder, database_url, amqp_url, proxy))
    try:
        supervisor.start()
        ids = _ask(amqp_url)
        time.sleep(3)
        _break(supervisor, proxy, result, 60 * scale)
        _publish(amqp_url, "pause", [{"id": job_id} for job_id in ids])
        with connected(database_url) as sql:
            wait_for(lambda: not sql("SELECT FROM runs WHERE status <> 'succeeded'"), "every run ended", 150)
            wait_for(lambda: not sql("SELECT FROM runs"), "every end announced", 60)
            runs = sql("SELECT event_id::text, status::text FROM run_history WHERE status <> 'emitted'")
        _check(result, folder, runs)
        result.failures += supervisor.crashes
    finally:
        proxy.thaw()
        result.failures += supervisor.close()
        proxy.close()
        stack.drop_database(database_url)
        stack.delete_vhost(amqp_url)


def _replicas(stack: Stack, folder: Path, database_url: str, amqp_url: str, proxy: Proxy) -> list[Replica]:
    offered = folder / "commands.toml"
    command = json.dumps(["/bin/sh", "-c", COMMAND])
    offered.write_text(f"[job]\nrun = {command}\ndirectory = {json.dumps(str(folder))}\nconcurrency = 20\ngrace = 2\n")
    env = {"DATABASE_URL": database_url, "AMQP_URL": amqp_url}
    replicas = [Replica(stack, f"{role}-{n}", role, dict(env)) for role in ("consumer", "producer") for n in (1, 2)]
    for n in range(1, WORKERS + 1):
        url = amqp_url.replace(f":{stack.rabbitmq.port}/", f":{proxy.port}/") if n <= CUT_OFF else amqp_url
        own = {"AMQP_URL": url, "SCHEDULER_COMMANDS_FILE": str(offered), "SCHEDULER_STOP_GRACE": "2"}
        replicas.append(Replica(stack, f"worker-{n}", "worker", own))
    return replicas


def _ask(amqp_url: str) -> list[str]:
    requests = [
        {"id": str(uuid4()), "job_type": "chaos", "every": SPACING, "on_missed": "latest",
         "run": POLICY | {"overlap": ("skip", "wait")[n % 2]}, "target": {"command": {"name": "job"}}}
        for n in range(JOBS)
    ]
    _publish(amqp_url, "request", requests)
    return [request["id"] for request in requests]


def _publish(amqp_url: str, key: str, bodies: list[dict]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    for body in bodies:
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        channel.basic_publish("schedule.commands", key, json.dumps(body).encode(), properties, mandatory=True)
    connection.close()


def _break(supervisor: Supervisor, proxy: Proxy, result: Result, seconds: float) -> None:
    """Kill, freeze and disconnect workers at random, for less than a heartbeat: a disconnected worker continues."""
    chance = random.Random(16)
    fleet = supervisor.by_role("worker")
    thaw_times: dict[str, float] = {}
    flows_at, done = 0.0, dict.fromkeys(("killed", "frozen", "disconnected"), 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end or thaw_times or flows_at:
        now = time.monotonic()
        for replica in [replica for replica in fleet if thaw_times.get(replica.name, now + 1) <= now]:
            replica.send(signal.SIGCONT)
            supervisor.release(replica)
            del thaw_times[replica.name]
        if flows_at and flows_at <= now:
            proxy.thaw()
            flows_at = 0.0
        victim, what = chance.choice(fleet), chance.choice(list(done))
        if now < end and victim.running and victim.name not in thaw_times:
            if what == "killed":
                victim.end(signal.SIGKILL)
            elif what == "frozen" and len(thaw_times) < WORKERS // 2:
                supervisor.hold(victim)
                victim.send(signal.SIGSTOP)
                thaw_times[victim.name] = now + chance.uniform(2, 25)
            elif what == "disconnected" and not flows_at:
                proxy.freeze()
                flows_at = now + chance.uniform(1, 6)
            else:
                continue
            done[what] += 1
        time.sleep(chance.uniform(0.3, 1.5))
    result.notes.append(", ".join(f"{count} times {what}" for what, count in done.items()))


def _check(result: Result, folder: Path, runs: list[tuple[str, str]]) -> None:
    ran = set((folder / "ran").read_text().split())
    overlaps = (folder / "overlaps").read_text().split() if (folder / "overlaps").exists() else []
    result.requests, result.expected = JOBS, len(runs)
    result.received = sum(event_id in ran for event_id, _ in runs)
    result.lost = result.expected - result.received
    unfinished = [event_id for event_id, status in runs if status != "succeeded"]
    if unfinished:
        result.failures.append(f"{len(unfinished)} runs did not succeed")
    if overlaps:
        result.failures.append(f"{len(overlaps)} commands ran concurrently with another of the same job")
    if len(runs) < JOBS:
        result.failures.append(f"only {len(runs)} runs of {JOBS} jobs")
