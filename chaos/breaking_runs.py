"""Tracked jobs: workers die, results pour in while we die, come late, twice and shuffled, and the servers restart."""

import json
import random
import signal
import time
from collections.abc import Callable
from contextlib import closing

import pika

from chaos.account import Result
from chaos.breaking_rabbitmq import elect
from chaos.faults import fault
from chaos.replicas import wait_for
from chaos.runs_account import ended, judge
from chaos.runs_load import TrackedHost
from chaos.world import World
from scheduler.dev.servers import Stack

Breaking = Callable[[World, TrackedHost], None]


def under_results(
    stack: Stack, result: Result, breaking: Breaking, *, rescue: bool = False, within: float = 150.0, **load: float
) -> None:
    """Break something while workers report, and account for every run and every attempt."""
    world = World(stack, host=TrackedHost, **load)
    host: TrackedHost = world.host
    try:
        world.start()
        time.sleep(3)
        breaking(world, host)
        host.stop_asking()
        try:
            wait_for(lambda: not host.outstanding, "every command confirmed", within)
            wait_for(lambda: host.mangled and ended(host.runs, world.sql), "every run's end", within)
        except TimeoutError as error:
            result.failures.append(str(error))
        world.settle(result, within=within)
        judge(result, host.runs, world.sql, dead_letters(world), rescue=rescue, policy=host.policy)
    finally:
        world.close(result)


def dead_letters(world: World) -> set[str]:
    """Return the events that lie in scheduler_dead."""
    found = set()
    with closing(pika.BlockingConnection(pika.URLParameters(world.amqp_url.split(",")[0]))) as connection:
        channel = connection.channel()
        while (got := channel.basic_get("scheduler_dead", auto_ack=True))[0]:
            found.add(json.loads(got[2])["event_id"])
    return found


@fault("workers-killed", "kill -9 of workers in the middle of their work, again and again")
def workers_killed(stack: Stack, result: Result, scale: float) -> None:
    kills = 0

    def breaking(_: World, host: TrackedHost) -> None:
        nonlocal kills
        chance, end = random.Random(2), time.monotonic() + 24 * scale
        while time.monotonic() < end:
            host.staff.kill()
            kills += 1
            time.sleep(chance.uniform(0.2, 1.0))

    under_results(stack, result, breaking, rescue=True)
    result.notes.append(f"{kills} workers killed")


@fault("results-kill", "kill -9 of consumers and producers while results pour in")
def results_kill(stack: Stack, result: Result, scale: float) -> None:
    def breaking(world: World, _: TrackedHost) -> None:
        chance, end = random.Random(3), time.monotonic() + 24 * scale
        while time.monotonic() < end:
            victim = chance.choice(world.supervisor.replicas)
            if victim.running:
                victim.end(signal.SIGKILL)
            time.sleep(chance.uniform(0.5, 2.0))

    under_results(stack, result, breaking)


@fault("results-mangled", "results lie for up to two minutes and then come shuffled, some of them twice or three times")
def results_mangled(stack: Stack, result: Result, scale: float) -> None:
    delay = 120 * scale
    under_results(stack, result, lambda *_: time.sleep(24 * scale), delay=delay, within=150 + 5 * delay)


@fault("late-workers", "a third of the attempts are reported long after their worker was given up")
def late_workers(stack: Stack, result: Result, scale: float) -> None:
    under_results(stack, result, lambda *_: time.sleep(20 * scale), hangs=33)


@fault("runs-restarts", "Postgres and RabbitMQ restarted and killed while runs are open")
def runs_restarts(stack: Stack, result: Result, scale: float) -> None:
    def breaking(world: World, _: TrackedHost) -> None:
        stack.postgres.restart("immediate")
        time.sleep(5 * scale)
        stack.rabbitmq.stop()
        time.sleep(3 * scale)
        stack.rabbitmq.start()
        time.sleep(5 * scale)
        stack.rabbitmq.kill()
        stack.postgres.kill()
        stack.postgres.start()
        stack.rabbitmq.start()
        elect(world)
        time.sleep(5 * scale)

    under_results(stack, result, breaking, within=200.0)
