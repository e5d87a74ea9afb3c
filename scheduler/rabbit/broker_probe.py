"""Probe a broker: connect, and count the pending results."""

from collections.abc import Sequence
from typing import NamedTuple

import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

from scheduler.domain.names import RESULTS_QUEUE
from scheduler.rabbit.address import broker_name, open_connection, parameters
from scheduler.rabbit.link import reason


class BrokerState(NamedTuple):
    """The problems of all brokers, None if one responds; and the messages in scheduler_results."""

    problem: str | None
    results: int | None


def probe_broker(urls: Sequence[str], seconds: float = 3.0) -> BrokerState:
    """Probe these brokers in order until one responds."""
    problems = []
    for url in urls:
        settings = parameters(url, "probe")
        settings.socket_timeout = settings.stack_timeout = settings.blocked_connection_timeout = seconds
        try:
            connection = open_connection(settings)
            try:
                results = _count_results(connection)
            finally:
                connection.close()
        except (AMQPError, OSError) as error:
            problems.append(f"RabbitMQ at {broker_name(url)}: {reason(error)}")
        else:
            return BrokerState(None, results)
    return BrokerState("; ".join(problems), None)


def _count_results(connection: pika.BlockingConnection) -> int:
    """Return the number of pending results; zero if no process has declared the queue yet."""
    try:
        declared = connection.channel().queue_declare(RESULTS_QUEUE, passive=True)
    except ChannelClosedByBroker:
        return 0
    return int(declared.method.message_count)
