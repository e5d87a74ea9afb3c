"""RabbitMQ faults: restarts, crashes, closed connections, alarms, missing and full queues."""

import contextlib
import time
from collections.abc import Callable

import pika

from chaos.account import Result
from chaos.faults import fault
from chaos.replicas import wait_for
from chaos.world import World
from scheduler.dev.servers import ServerFailed, Stack
from scheduler.dev.servers.vhosts import name_of

FAILURES = "scheduler_publish_failures_total"


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


@fault("rabbitmq-restart", "RabbitMQ stopped for some seconds and started")
def restart(stack: Stack, result: Result, scale: float) -> None:
    def break_it(_: World) -> None:
        stack.rabbitmq.stop()
        time.sleep(4 * scale)
        stack.rabbitmq.start()

    _under_load(stack, result, break_it, scale)


@fault("rabbitmq-kill", "RabbitMQ killed and started")
def kill(stack: Stack, result: Result, scale: float) -> None:
    def break_it(world: World) -> None:
        stack.rabbitmq.kill()
        time.sleep(1)
        stack.rabbitmq.start()
        elect(world)

    _under_load(stack, result, break_it, scale)


@fault("rabbitmq-connections", "RabbitMQ closes every connection, five times")
def close_connections(stack: Stack, result: Result, scale: float) -> None:
    def break_it(_: World) -> None:
        for _ in range(5):
            stack.rabbitmq.evaluate('rabbit_networking:close_all_connections(<<"chaos">>)')
            time.sleep(3 * scale)

    _under_load(stack, result, break_it, scale)


@fault("rabbitmq-alarm", "RabbitMQ's memory alarm raised for some seconds and cleared")
def alarm(stack: Stack, result: Result, scale: float) -> None:
    def break_it(world: World) -> None:
        stack.rabbitmq.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.000001)")
        try:
            wait_for(lambda: all("rabbitmq" in replica.missing() for replica in world.producers),
                     "every producer reports that it is blocked", 30)
            missing = world.producers[0].missing()
            result.notes.append(f"producers report: {missing['rabbitmq']}" if list(missing) == ["rabbitmq"] else f"{missing}")
            if "postgres" in missing:
                result.failures.append(f"a blocked producer names Postgres: {missing}")
            time.sleep(13 * scale)
        finally:
            stack.rabbitmq.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.4)")

    _under_load(stack, result, break_it, scale)


@fault("unroutable", "the queue unbound, then bound again")
def unroutable(stack: Stack, result: Result, scale: float) -> None:
    _refused(stack, result, scale, "returned", lambda channel: channel.queue_unbind("mainapp_due", "schedule.events", "due"),
             lambda channel: channel.queue_bind("mainapp_due", "schedule.events", "due"))


@fault("deleted-queue", "the queue deleted, then declared again")
def deleted_queue(stack: Stack, result: Result, scale: float) -> None:
    def delete(channel: pika.channel.Channel) -> None:
        # Only after the host has consumed everything: messages lost with the queue do not count.
        def empty() -> bool:
            channel.queue_unbind("mainapp_due", "schedule.events", "due")
            time.sleep(1.5)
            return channel.queue_declare("mainapp_due", passive=True).method.message_count == 0

        wait_for(empty, "the host has emptied its queue", 60)
        channel.queue_delete("mainapp_due")

    def declare(channel: pika.channel.Channel) -> None:
        channel.queue_declare("mainapp_due", durable=True)
        channel.queue_bind("mainapp_due", "schedule.events", "due")

    _refused(stack, result, scale, "returned", delete, declare)


@fault("refused", "the queue full, with overflow reject-publish, then not full")
def refused(stack: Stack, result: Result, scale: float) -> None:
    policy = (
        'rabbit_policy:set(<<"{vhost}">>, <<"full">>, <<"^mainapp_due$">>, [{{<<"max-length">>, 0}}, '
        '{{<<"overflow">>, <<"reject-publish">>}}], 1, <<"queues">>, <<"chaos">>)'
    )

    def refuse(_: pika.channel.Channel) -> None:
        stack.rabbitmq.evaluate(policy.format(vhost=vhost["name"]))

    def accept(_: pika.channel.Channel) -> None:
        stack.rabbitmq.evaluate(f'rabbit_policy:delete(<<"{vhost["name"]}">>, <<"full">>, <<"chaos">>)')

    vhost: dict[str, str] = {}
    _refused(stack, result, scale, "refused", refuse, accept, vhost)


def _refused(
    stack: Stack, result: Result, scale: float, reason: str,
    refuse: Callable[[pika.channel.Channel], None], accept: Callable[[pika.channel.Channel], None],
    vhost: dict[str, str] | None = None,
) -> None:
    """Make events undeliverable for some time; each job must be retried separately."""
    world = World(stack, one_shots=60)
    if vhost is not None:
        vhost["name"] = name_of(world.amqp_url)
    try:
        world.start()
        time.sleep(2)
        connection = pika.BlockingConnection(pika.URLParameters(world.amqp_url))
        channel = connection.channel()
        refuse(channel)
        seen = []
        began = time.monotonic()
        # A slow machine may need longer for the third retry.
        while (passed := time.monotonic() - began) < 14 * scale or (
            passed < 60 and max((retries for retries, _, _ in seen), default=0) < 3
        ):
            connection.process_data_events(0.5)
            seen += world.sql(
                "SELECT retries, extract(epoch FROM retry_at - clock_timestamp())::float8, next_run_at::text FROM jobs "
                "WHERE retry_at > clock_timestamp() AND job_type = 'chaos.job' ORDER BY next_run_at LIMIT 200"
            )
        accept(channel)
        connection.close()
        _check(result, seen, world, reason)
        world.settle(result, within=90)
    finally:
        world.close(result)


def _check(result: Result, seen: list[tuple[int, float, str]], world: World, reason: str) -> None:
    counted = sum(replica.metric(FAILURES, reason=reason) for replica in world.producers)
    most = max((retries for retries, _, _ in seen), default=0)
    # Each retry waits at most 1, 2, 4, … seconds: the remaining wait never exceeds that.
    too_long = [left for retries, left, _ in seen if left > min(2 ** (retries - 1), 60)]
    waits = {round(left, 3) for retries, left, _ in seen if retries == most}
    result.notes.append(f"up to {most} retries; {counted:,.0f} failures counted as {reason}")
    if not counted or most < 3:
        result.failures.append(f"retries {most}, metric {counted}: expected growing retries, counted as {reason}")
    if too_long or len(waits) < 2:
        result.failures.append(f"delays neither growing nor jittered: {too_long[:3]} {sorted(waits)[:3]}")


def elect(world: World) -> None:
    """Trigger elections in quorum queues that were declared just before a kill."""
    vhost = name_of(world.amqp_url)
    for queue in ("scheduler_inbox", "scheduler_results", "scheduler_dead"):
        with contextlib.suppress(ServerFailed):  # it already has a leader
            world.stack.rabbitmq.evaluate(f"ra:trigger_election({{'{vhost}_{queue}', node()}})")
