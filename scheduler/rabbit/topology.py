"""The exchanges, queues and bindings of the contract, declared idempotently by consumers and producers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
    WORK_EXCHANGE,
    delay_entry,
    delay_queue,
)
from scheduler.domain.targets.target import SHARED_QUEUES
from scheduler.rabbit.address import broker_name, open_connection, parameters
from scheduler.rabbit.link import Link, RabbitUnavailable, reason

# A command that was delivered this often without an acknowledgement crashes the consumer: it is dead-lettered.
DELIVERY_LIMIT = 20
# Matches messages with any of these headers; void matches every value.
BY_DELAY_HEADER: dict[str, Any] = {"x-match": "any-with-x", **dict.fromkeys(DELAY_HEADERS)}
_NOT_FOUND, _ACCESS_REFUSED, _PRECONDITION_FAILED = 404, 403, 406


class PermissionRefused(Misconfigured):
    """The broker denies our user a permission."""


def _type(queue_type: str) -> dict[str, Any]:
    return {} if queue_type == "default" else {"x-queue-type": queue_type}


def inbox_arguments(queue_type: str) -> dict[str, Any]:
    """Return the arguments of the sidecar's queues: messages that crash it repeatedly are dead-lettered."""
    arguments = _type(queue_type) | {"x-dead-letter-exchange": DEAD_EXCHANGE}
    if queue_type == "quorum":
        arguments |= {
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",  # required for at-least-once dead-lettering; there is no limit
        }
    return arguments


def work_arguments(queue_type: str) -> dict[str, Any]:
    """Return the arguments of a work queue, without dead-lettering.

    The run watches each of its attempts. If one expires in the queue or crashes worker after worker, the run is
    retried or dead without the message, so a copy in scheduler_dead would be wrong.
    """
    return _type(queue_type) | ({"x-delivery-limit": DELIVERY_LIMIT} if queue_type == "quorum" else {})


def dead_arguments(queue_type: str) -> dict[str, Any]:
    """Return the arguments of scheduler_dead: listing a message twenty times must not drop it."""
    return _type(queue_type) | ({"x-delivery-limit": 1_000_000} if queue_type == "quorum" else {})


def declare(
    url: str, *, queue_type: str, due_queue_type: str, delay_exchanges: Sequence[tuple[str, str]] = ()
) -> None:
    """Declare everything. Raises Misconfigured if an exchange or queue exists with a different definition.

    `delay_exchanges` are additional exits of delayed messages, each with its type.
    """
    with connected(url, "topology") as connection:
        _declare(connection, queue_type, due_queue_type)
        _declare_delay(connection, queue_type, delay_exchanges)


@contextmanager
def connected(url: str, name: str) -> Iterator[pika.BlockingConnection]:
    """Open a connection and translate its errors. Raises RabbitUnavailable or Misconfigured."""
    connection = None
    try:
        connection = open_connection(parameters(url, name))
        yield connection
    except ChannelClosedByBroker as error:
        raise declaration_error(error, broker_name(url)) from error
    except (AMQPError, OSError) as error:
        raise RabbitUnavailable(f"RabbitMQ at {broker_name(url)}: {reason(error)}") from error
    finally:
        if connection is not None and connection.is_open:
            with suppress(AMQPError):  # the declarations are done, or another error is raised
                connection.close()


def is_incomplete(link: Link, delay_exchanges: Sequence[tuple[str, str]]) -> bool:
    """Return whether an exchange, or a queue that no consumer watches, was deleted.

    `mainapp_due` is not checked: it belongs to the host, who may delete it.
    """
    entries = [DELAY_EXCHANGE, *(delay_entry(name) for name, _ in delay_exchanges)]
    exchanges = [COMMANDS_EXCHANGE, EVENTS_EXCHANGE, DEAD_EXCHANGE, WORK_EXCHANGE, DELAYED_EXCHANGE, *entries]
    return link.lacks(exchanges, [DEAD_QUEUE, *SHARED_QUEUES])


def declared(url: str) -> bool:
    """Return whether the exchanges and the queues that a worker uses exist, without permission to declare any."""
    with connected(url, "topology") as connection:
        try:
            channel = connection.channel()
            for exchange in (COMMANDS_EXCHANGE, WORK_EXCHANGE):
                channel.exchange_declare(exchange, passive=True)
            for queue in SHARED_QUEUES:
                channel.queue_declare(queue, passive=True)
        except ChannelClosedByBroker as error:
            # The reply of RabbitMQ 4 to a user without permission on the queue, such as a commands-only worker.
            refused = error.reply_code == _ACCESS_REFUSED
            no_permission = refused and any(queue in error.reply_text for queue in SHARED_QUEUES)
            if error.reply_code == _NOT_FOUND or no_permission:
                return no_permission
            raise
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
    for queue, key in SHARED_QUEUES.items():
        channel.queue_declare(queue, durable=True, arguments=work_arguments(queue_type))
        channel.queue_bind(queue, WORK_EXCHANGE, key)
    if not _exists(connection, DUE_QUEUE):
        channel.queue_declare(DUE_QUEUE, durable=True, arguments=_type(due_queue_type))
    channel.queue_bind(DUE_QUEUE, EVENTS_EXCHANGE, "due")
    channel.close()


def _declare_delay(
    connection: pika.BlockingConnection, queue_type: str, additional: Sequence[tuple[str, str]]
) -> None:
    """Declare the entries of delayed messages; messages without a delay header go straight to the exit."""
    channel = connection.channel()
    channel.exchange_declare(DELAYED_EXCHANGE, "topic", durable=True)
    pairs = [(DELAY_EXCHANGE, DELAYED_EXCHANGE, DELAY_QUEUE)]
    for name, kind in additional:
        _declare_exit(connection, name, kind)
        pairs.append((delay_entry(name), name, delay_queue(name)))
    for entry, exit_, queue in pairs:
        channel.exchange_declare(entry, "headers", durable=True, arguments={"alternate-exchange": exit_})
        channel.queue_declare(queue, durable=True, arguments=inbox_arguments(queue_type))
        channel.queue_bind(queue, entry, "", BY_DELAY_HEADER)
    channel.close()


def _declare_exit(connection: pika.BlockingConnection, name: str, kind: str) -> None:
    """Declare an exit; one that exists with that type is accepted regardless of its other arguments."""
    channel: BlockingChannel = connection.channel()
    try:
        channel.exchange_declare(name, kind, durable=True)
    except ChannelClosedByBroker as error:
        # The broker compares the types first. No client can publish to an internal exchange.
        unusable = any(f"inequivalent arg '{name}'" in error.reply_text for name in ("type", "internal"))
        if error.reply_code != _PRECONDITION_FAILED or unusable:
            raise
        return
    channel.close()


def _exists(connection: pika.BlockingConnection, queue: str) -> bool:
    """Return whether a queue exists, with any arguments: the host may have declared it."""
    probe: BlockingChannel = connection.channel()
    try:
        probe.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as error:
        if error.reply_code != _NOT_FOUND:
            raise
        return False
    probe.close()
    return True


def declaration_error(error: ChannelClosedByBroker, broker: str) -> Misconfigured | Unavailable:
    """Return the exception for a rejected declaration, permanent or temporary."""
    if error.reply_code == _PRECONDITION_FAILED:
        return Misconfigured(
            f"RabbitMQ at {broker} already has a different definition: {error.reply_text}. "
            "Set SCHEDULER_QUEUE_TYPE or SCHEDULER_DELAY_EXCHANGES to the existing one, or delete that once it is "
            "empty."
        )
    if error.reply_code == _ACCESS_REFUSED:
        return PermissionRefused(
            f"RabbitMQ at {broker} denies a permission: {error.reply_text}. "
            "Give the user configure, write and read permission on scheduler_.*, schedule\\..* and mainapp_due."
        )
    return RabbitUnavailable(f"RabbitMQ at {broker}: {reason(error)}")
