"""Declare the replacements for the plugin's exchanges and report each failure."""

from collections.abc import Callable, Iterator

from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from scheduler.domain.delayed.plugin_migration import Binding, ExchangePair, MigrationPlan
from scheduler.domain.names import delay_queue
from scheduler.rabbit.topology import BY_DELAY_HEADER, connected, inbox_arguments

Act = Callable[[BlockingChannel], object]


def apply(url: str, plan: MigrationPlan, queue_type: str) -> list[str]:
    """Declare the plan and return the failures with their reasons. Raises RabbitUnavailable without a broker."""
    problems = []
    with connected(url, "delayed migrate") as connection:
        for pair in plan.pairs:
            for name, act in _acts(pair, queue_type):
                channel = connection.channel()
                try:
                    act(channel)
                    channel.close()
                except ChannelClosedByBroker as error:
                    problems.append(f"{name}: {error.reply_text}")
    return problems


def _acts(pair: ExchangePair, queue_type: str) -> Iterator[tuple[str, Act]]:
    queue = delay_queue(pair.exit)
    yield f"exchange {pair.exit}", lambda channel: channel.exchange_declare(
        pair.exit, pair.type, durable=pair.durable, arguments=dict(pair.arguments))
    yield f"exchange {pair.entry}", lambda channel: channel.exchange_declare(
        pair.entry, "headers", durable=True, arguments={"alternate-exchange": pair.exit})
    yield f"queue {queue}", lambda channel: channel.queue_declare(
        queue, durable=True, arguments=inbox_arguments(queue_type))
    yield f"binding of {queue}", lambda channel: channel.queue_bind(queue, pair.entry, "", BY_DELAY_HEADER)
    for binding in pair.bindings:
        yield f"binding {binding}", _bind(binding)


def _bind(binding: Binding) -> Act:
    def act(channel: BlockingChannel) -> object:
        arguments = dict(binding.arguments)
        if binding.to_exchange:
            return channel.exchange_bind(binding.destination, binding.source, binding.routing_key, arguments)
        return channel.queue_bind(binding.destination, binding.source, binding.routing_key, arguments)

    return act
