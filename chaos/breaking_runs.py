"""Faults of tracked jobs: killed workers, mangled results, restarts while runs are open."""

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
from chaos.runs_account import all_ended, check
from chaos.runs_load import TrackedHost
from chaos.world import World
from scheduler.dev.servers import Stack

Breaking = Callable[[World, TrackedHost], None]


def under_results(
    stack: Stack, result: Result, break_it: Breaking, *, rescue: bool = False, within: float = 150.0, **load: float
) -> None:
    """Break something while workers report, and check every run and every attempt."""
    world = World(stack, host=TrackedHost, **load)
    host: TrackedHost = world.host
    try:
        world.start()
        time.sleep(3)
        break_it(world, host)
        host.stop_requesting()
        try:
            wait_for(lambda: not host.outstanding, "every command confirmed", within)
            wait_for(lambda: host.mangled and all_ended(host.runs, world.sql), "every run's end", within)
        except TimeoutError as error:
            result.failures.append(str(error))
        world.settle(result, within=within)
        check(result, host.runs, world.sql, dead_letters(world), rescue=rescue, policy=host.policy)
    finally:
        world.close(result)


def dead_letters(world: World) -> set[str]:
    """Return the events in scheduler_dead."""
    event_ids = set()
    with closing(pika.BlockingConnection(pika.URLParameters(world.amqp_url.split(",")[0]))) as connection:
        channel = connection.channel()
        while (got := channel.basic_get("scheduler_dead", auto_ack=True))[0]:
            event_ids.add(json.loads(got[2])["event_id"])
    return event_ids


@fault("workers-killed", "kill -9 of busy workers, repeatedly")
def workers_killed(stack: Stack, result: Result, scale: float) -> None:
    kills = 0

    def break_it(_: World, host: TrackedHost) -> None:
        nonlocal kills
        chance, end = random.Random(2), time.monotonic() + 24 * scale
        while time.monotonic() < end:
            host.worker_pool.kill()
            kills += 1
            time.sleep(chance.uniform(0.2, 1.0))

    under_results(stack, result, break_it, rescue=True)
    result.notes.append(f"{kills} workers killed")


@fault("results-kill", "kill -9 of consumers and producers while results arrive")
def results_kill(stack: Stack, result: Result, scale: float) -> None:
    def break_it(world: World, _: TrackedHost) -> None:
        chance, end = random.Random(3), time.monotonic() + 24 * scale
        while time.monotonic() < end:
            victim = chance.choice(world.supervisor.replicas)
            if victim.running:
                victim.end(signal.SIGKILL)
            time.sleep(chance.uniform(0.5, 2.0))

    under_results(stack, result, break_it)


@fault("results-mangled", "results delayed by up to two minutes and shuffled, some duplicated or tripled")
def results_mangled(stack: Stack, result: Result, scale: float) -> None:
    delay = 120 * scale
    under_results(stack, result, lambda *_: time.sleep(24 * scale), delay=delay, within=150 + 5 * delay)


@fault("late-workers", "a third of the attempts reported long after their attempt has ended")
def late_workers(stack: Stack, result: Result, scale: float) -> None:
    under_results(stack, result, lambda *_: time.sleep(20 * scale), hangs=33)


@fault("runs-restarts", "Postgres and RabbitMQ restarted and killed while runs are open")
def runs_restarts(stack: Stack, result: Result, scale: float) -> None:
    def break_it(world: World, _: TrackedHost) -> None:
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

    under_results(stack, result, break_it, within=200.0)
