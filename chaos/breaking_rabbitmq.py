"""Faults 4 and 6: the broker stops, dies, hangs up, raises its alarm, has no queue, or refuses."""

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


def _under_load(stack: Stack, result: Result, breaking: Callable[[World], None], scale: float) -> None:
    world = World(stack)
    try:
        world.start()
        time.sleep(3)
        breaking(world)
        time.sleep(4 * scale)
        world.settle(result, within=60)
    finally:
        world.close(result)


@fault("rabbitmq-restart", "RabbitMQ stopped, away for some seconds, and started")
def restart(stack: Stack, result: Result, scale: float) -> None:
    def breaking(_: World) -> None:
        stack.rabbitmq.stop()
        time.sleep(4 * scale)
        stack.rabbitmq.start()

    _under_load(stack, result, breaking, scale)


@fault("rabbitmq-kill", "RabbitMQ killed and started")
def kill(stack: Stack, result: Result, scale: float) -> None:
    def breaking(world: World) -> None:
        stack.rabbitmq.kill()
        time.sleep(1)
        stack.rabbitmq.start()
        elect(world)

    _under_load(stack, result, breaking, scale)


@fault("rabbitmq-connections", "RabbitMQ closes every connection, five times")
def close_connections(stack: Stack, result: Result, scale: float) -> None:
    def breaking(_: World) -> None:
        for _ in range(5):
            stack.rabbitmq.evaluate('rabbit_networking:close_all_connections(<<"chaos">>)')
            time.sleep(3 * scale)

    _under_load(stack, result, breaking, scale)


@fault("rabbitmq-alarm", "RabbitMQ's memory alarm raised for some seconds and cleared")
def alarm(stack: Stack, result: Result, scale: float) -> None:
    def breaking(world: World) -> None:
        stack.rabbitmq.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.000001)")
        try:
            wait_for(lambda: all("rabbitmq" in each.missing() for each in world.producers),
                     "every producer says that it is blocked", 30)
            said = world.producers[0].missing()
            result.notes.append(f"producers say: {said['rabbitmq']}" if list(said) == ["rabbitmq"] else f"{said}")
            if "postgres" in said:
                result.failures.append(f"a blocked producer blames Postgres: {said}")
            time.sleep(13 * scale)
        finally:
            stack.rabbitmq.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.4)")

    _under_load(stack, result, breaking, scale)


@fault("unroutable", "the queue unbound, then bound again")
def unroutable(stack: Stack, result: Result, scale: float) -> None:
    _refused(stack, result, scale, "returned", lambda channel: channel.queue_unbind("mainapp_due", "schedule.events", "due"),
             lambda channel: channel.queue_bind("mainapp_due", "schedule.events", "due"))


@fault("deleted-queue", "the queue deleted, then declared again")
def deleted_queue(stack: Stack, result: Result, scale: float) -> None:
    def delete(channel: pika.channel.Channel) -> None:
        # Only when the host has taken all that was in it: what it loses with its queue is its own.
        def empty() -> bool:
            channel.queue_unbind("mainapp_due", "schedule.events", "due")
            time.sleep(1.5)
            return channel.queue_declare("mainapp_due", passive=True).method.message_count == 0

        wait_for(empty, "the host has taken all that was in its queue", 60)
        channel.queue_delete("mainapp_due")

    def declare(channel: pika.channel.Channel) -> None:
        channel.queue_declare("mainapp_due", durable=True)
        channel.queue_bind("mainapp_due", "schedule.events", "due")

    _refused(stack, result, scale, "returned", delete, declare)


@fault("refused", "the queue full, with overflow reject-publish, then not any more")
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
    """No event can be delivered for a while; each job is tried again by itself."""
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
        # A slow machine may need longer for the third try.
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
        _judge(result, seen, world, reason)
        world.settle(result, within=90)
    finally:
        world.close(result)


def _judge(result: Result, seen: list[tuple[int, float, str]], world: World, reason: str) -> None:
    counted = sum(each.metric(FAILURES, reason=reason) for each in world.producers)
    most = max((retries for retries, _, _ in seen), default=0)
    # Each retry waits at most 1, 2, 4, … seconds: what is left of the wait never exceeds that.
    too_long = [left for retries, left, _ in seen if left > min(2 ** (retries - 1), 60)]
    waits = {round(left, 3) for retries, left, _ in seen if retries == most}
    result.notes.append(f"up to {most} retries; {counted:,.0f} failures counted as {reason}")
    if not counted or most < 3:
        result.failures.append(f"retries {most}, metric {counted}: expected growing retries, counted as {reason}")
    if too_long or len(waits) < 2:
        result.failures.append(f"delays neither growing nor jittered: {too_long[:3]} {sorted(waits)[:3]}")


def elect(world: World) -> None:
    """Have quorum queues that were declared right before a kill choose their leader anew."""
    vhost = name_of(world.amqp_url)
    for queue in ("scheduler_inbox", "scheduler_results", "scheduler_dead"):
        with contextlib.suppress(ServerFailed):  # it has one already
            world.stack.rabbitmq.evaluate(f"ra:trigger_election({{'{vhost}_{queue}', node()}})")
