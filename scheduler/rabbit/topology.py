"""The exchanges, queues and bindings of the contract, declared idempotently by consumers and producers."""

from collections.abc import Sequence
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from scheduler.domain.delayed.delay import DELAY_HEADERS
from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.domain.messages import COMMAND_MODELS, RESULT_MODELS
from scheduler.domain.names import (
    COMMANDS_EXCHANGE,
    DEAD_EXCHANGE,
    DEAD_QUEUE,
    DELAY_EXCHANGE,
    DELAY_QUEUE,
    DELAYED_EXCHANGE,
    DUE_QUEUE,
    EVENTS_EXCHANGE,
    INBOX_QUEUE,
    RESULTS_QUEUE,
    WEBHOOK_KEY,
    WEBHOOKS_QUEUE,
    WORK_EXCHANGE,
    delay_entry,
    delay_queue,
)
from scheduler.rabbit.address import open_connection, parameters, place
from scheduler.rabbit.link import Link, RabbitUnavailable, reason

# A command that was delivered this often without an answer crashes the consumer: it goes to schedule.dead.
DELIVERY_LIMIT = 20
# A message with any of these headers, whatever its value: void stands for that.
BY_DELAY_HEADER: dict[str, Any] = {"x-match": "any-with-x", **dict.fromkeys(DELAY_HEADERS)}
_NOT_FOUND, _ACCESS_REFUSED, _PRECONDITION_FAILED = 404, 403, 406


class PermissionRefused(Misconfigured):
    """The broker denies our user a permission."""


def _type(queue_type: str) -> dict[str, Any]:
    return {} if queue_type == "default" else {"x-queue-type": queue_type}


def inbox_arguments(queue_type: str) -> dict[str, Any]:
    """Return the arguments of our own queues: what crashes us again and again is dead-lettered, not lost."""
    arguments = _type(queue_type) | {"x-dead-letter-exchange": DEAD_EXCHANGE}
    if queue_type == "quorum":
        arguments |= {
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",  # at-least-once dead-lettering asks for it; there is no limit
        }
    return arguments


def work_arguments(queue_type: str) -> dict[str, Any]:
    """Return the arguments of a queue of work.

    Every attempt in it is watched by its run: one that expires there, or that ends worker after worker, is made
    again or given up without its message, which must not lie in scheduler_dead besides.
    """
    return _type(queue_type) | ({"x-delivery-limit": DELIVERY_LIMIT} if queue_type == "quorum" else {})


def dead_arguments(queue_type: str) -> dict[str, Any]:
    """Return the arguments of scheduler_dead: looking at a message twenty times must not drop it."""
    return _type(queue_type) | ({"x-delivery-limit": 1_000_000} if queue_type == "quorum" else {})


def declare(
    url: str, *, queue_type: str, due_queue_type: str, delay_exchanges: Sequence[tuple[str, str]] = ()
) -> None:
    """Declare everything, or raise Misconfigured where an existing thing is of another kind.

    `delay_exchanges` are further exits of delayed messages, each with its type.
    """
    try:
        connection = open_connection(parameters(url, "topology"))
    except (AMQPError, OSError) as error:
        raise RabbitUnavailable(f"RabbitMQ at {place(url)}: {reason(error)}") from error
    try:
        _declare(connection, queue_type, due_queue_type)
        _declare_delay(connection, queue_type, delay_exchanges)
    except ChannelClosedByBroker as error:
        raise translated(error, place(url)) from error
    except (AMQPError, OSError) as error:
        raise RabbitUnavailable(f"RabbitMQ at {place(url)}: {reason(error)}") from error
    finally:
        if connection.is_open:
            connection.close()


def is_incomplete(link: Link, delay_exchanges: Sequence[tuple[str, str]]) -> bool:
    """Return whether an exchange, or a queue that no consumer watches, was deleted.

    `mainapp_due` is not checked: it belongs to the host, who may delete it.
    """
    entries = [DELAY_EXCHANGE, *(delay_entry(name) for name, _ in delay_exchanges)]
    exchanges = [COMMANDS_EXCHANGE, EVENTS_EXCHANGE, DEAD_EXCHANGE, WORK_EXCHANGE, DELAYED_EXCHANGE, *entries]
    return link.lacks(exchanges, [DEAD_QUEUE, WEBHOOKS_QUEUE])


def declared(url: str) -> bool:
    """Return whether the exchanges and the queue that a worker uses exist, without permission to declare any."""
    try:
        connection = open_connection(parameters(url, "topology"))
    except (AMQPError, OSError) as error:
        raise RabbitUnavailable(f"RabbitMQ at {place(url)}: {reason(error)}") from error
    try:
        channel = connection.channel()
        for exchange in (COMMANDS_EXCHANGE, WORK_EXCHANGE):
            channel.exchange_declare(exchange, passive=True)
        channel.queue_declare(WEBHOOKS_QUEUE, passive=True)
    except ChannelClosedByBroker as error:
        # The reply of RabbitMQ 4 to a user without permission on the queue, such as a worker for commands only.
        no_permission = error.reply_code == _ACCESS_REFUSED and WEBHOOKS_QUEUE in error.reply_text
        if error.reply_code == _NOT_FOUND or no_permission:
            return no_permission
        raise translated(error, place(url)) from error
    except (AMQPError, OSError) as error:
        raise RabbitUnavailable(f"RabbitMQ at {place(url)}: {reason(error)}") from error
    finally:
        if connection.is_open:
            connection.close()
    return True


def _declare(connection: pika.BlockingConnection, queue_type: str, due_queue_type: str) -> None:
    channel = connection.channel()
    for exchange in (COMMANDS_EXCHANGE, EVENTS_EXCHANGE, DEAD_EXCHANGE, WORK_EXCHANGE):
        channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_declare(DEAD_QUEUE, durable=True, arguments=dead_arguments(queue_type))
    channel.queue_bind(DEAD_QUEUE, DEAD_EXCHANGE, "#")
    channel.queue_declare(INBOX_QUEUE, durable=True, arguments=inbox_arguments(queue_type))
    channel.queue_declare(RESULTS_QUEUE, durable=True, arguments=inbox_arguments(queue_type))
    for queue, keys in ((INBOX_QUEUE, COMMAND_MODELS), (RESULTS_QUEUE, RESULT_MODELS)):
        for key in keys:
            channel.queue_bind(queue, COMMANDS_EXCHANGE, key)
    channel.queue_declare(WEBHOOKS_QUEUE, durable=True, arguments=work_arguments(queue_type))
    channel.queue_bind(WEBHOOKS_QUEUE, WORK_EXCHANGE, WEBHOOK_KEY)
    if not _exists(connection, DUE_QUEUE):
        channel.queue_declare(DUE_QUEUE, durable=True, arguments=_type(due_queue_type))
    channel.queue_bind(DUE_QUEUE, EVENTS_EXCHANGE, "due")
    channel.close()


def _declare_delay(
    connection: pika.BlockingConnection, queue_type: str, further: Sequence[tuple[str, str]]
) -> None:
    """Declare the ways of delayed messages: what has a delay header comes to us, all else goes straight on."""
    channel = connection.channel()
    channel.exchange_declare(DELAYED_EXCHANGE, "topic", durable=True)
    pairs = [(DELAY_EXCHANGE, DELAYED_EXCHANGE, DELAY_QUEUE)]
    for name, kind in further:
        _declare_exit(connection, name, kind)
        pairs.append((delay_entry(name), name, delay_queue(name)))
    for entry, exit_, queue in pairs:
        channel.exchange_declare(entry, "headers", durable=True, arguments={"alternate-exchange": exit_})
        channel.queue_declare(queue, durable=True, arguments=inbox_arguments(queue_type))
        channel.queue_bind(queue, entry, "", BY_DELAY_HEADER)
    channel.close()


def _declare_exit(connection: pika.BlockingConnection, name: str, kind: str) -> None:
    """Declare an exit unless it is there with that type, in whatever way its owner has declared it."""
    channel: BlockingChannel = connection.channel()
    try:
        channel.exchange_declare(name, kind, durable=True)
    except ChannelClosedByBroker as error:
        # The broker compares the types first. Nobody may publish to an internal one.
        ours = any(f"inequivalent arg '{name}'" in error.reply_text for name in ("type", "internal"))
        if error.reply_code != _PRECONDITION_FAILED or ours:
            raise
        return
    channel.close()


def _exists(connection: pika.BlockingConnection, queue: str) -> bool:
    """Tell whether a queue is there, of whatever kind: the host may have declared it in its own way."""
    probe: BlockingChannel = connection.channel()
    try:
        probe.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as error:
        if error.reply_code != _NOT_FOUND:
            raise
        return False
    probe.close()
    return True


def translated(error: ChannelClosedByBroker, where: str) -> Misconfigured | Unavailable:
    """Say what the broker at `where` has against a declaration, and whether that will pass."""
    if error.reply_code == _PRECONDITION_FAILED:
        return Misconfigured(
            f"RabbitMQ at {where} already has this by another definition: {error.reply_text}. "
            "Set SCHEDULER_QUEUE_TYPE or SCHEDULER_DELAY_EXCHANGES to what is there, or delete that once it is "
            "empty."
        )
    if error.reply_code == _ACCESS_REFUSED:
        return PermissionRefused(
            f"RabbitMQ at {where} refuses our user: {error.reply_text}. "
            "Give it configure, write and read permission on scheduler_.*, schedule\\..* and mainapp_due."
        )
    return RabbitUnavailable(f"RabbitMQ at {where}: {reason(error)}")
