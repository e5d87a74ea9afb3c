"""A publisher takes another channel on the same connection when the broker has spoilt the one it had."""

import re

import pika
import pytest
from support import DEADLINE, amqp, connected, until

from scheduler.dev.servers.vhosts import name_of
from scheduler.rabbit.frames import AmqpMessage
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher, Receipt


@pytest.fixture
def link(vhost):
    made = Link(vhost, "test")
    yield made
    made.close()


def message(queue, exchange=""):
    return AmqpMessage(exchange, queue, b"{}", pika.BasicProperties(message_id="m"), mandatory=True)


def full(channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})


@pytest.fixture
def broker(vhost):
    connection = amqp(vhost)
    yield connection.channel()
    connection.close()


def test_a_channel_that_the_broker_closed_is_renewed_and_the_link_stays(link, broker):
    broker.queue_declare("there", durable=True)
    publisher = Publisher(link, essential=False)
    assert publisher.send([message("there")]).wait(DEADLINE) == [Receipt.CONFIRMED]
    assert publisher.send([message("x", exchange="no such exchange")]).wait(DEADLINE) == [Receipt.UNKNOWN]
    until(lambda: not publisher.usable, "the broker to close the channel")
    publisher.renew()
    assert publisher.usable
    assert link.closed is None
    assert publisher.send([message("there"), message("there")]).wait(DEADLINE) == [Receipt.CONFIRMED] * 2


def test_a_channel_that_was_refused_is_renewed_and_counts_its_confirms_anew(link, broker):
    """An essential channel, as the producers' is: the old one, closed by us, must not take the link with it."""
    full(broker, "events")
    publisher = Publisher(link)
    assert publisher.send([message("events"), message("events")]).wait(DEADLINE) == [Receipt.REFUSED] * 2
    old = publisher._channel
    publisher.renew()
    assert publisher._channel is not old
    until(lambda: old.is_closed, "the old channel closed")
    broker.queue_delete("events")
    broker.queue_declare("events", durable=True)
    assert publisher.send([message("events")]).wait(DEADLINE) == [Receipt.CONFIRMED]
    assert link.closed is None


def test_a_producer_takes_a_new_channel_after_a_refusal_and_keeps_its_connection(stack, sidecar, amqp_url, host):
    """RabbitMQ 3 may refuse all that a channel sends to a queue whose leader died; a new one asks who leads."""
    if stack.rabbitmq is None:
        pytest.skip("needs a private server")
    host.channel.queue_delete("mainapp_due")
    full(host.channel, "mainapp_due")
    host.channel.queue_bind("mainapp_due", "schedule.events", "due")
    producer = sidecar.start("producer").ready()
    before: dict[str, str] = {}

    def only_three():
        """The host's channel, the producer's, and its replanner's; those for the topology may still be closing."""
        before.clear()
        before.update(channels(stack, amqp_url))
        return len(before) == 3

    until(only_three, "no other channels")
    with connected(sidecar.database_url) as connection:
        connection.cursor().execute(
            "INSERT INTO jobs (id, job_type, next_run_at) VALUES (gen_random_uuid(), 'a', now())")
    producer.logged("events not delivered")
    until(lambda: set(channels(stack, amqp_url)) - set(before), "another channel")
    assert set(channels(stack, amqp_url).values()) == set(before.values())
    producer.ready()


def channels(stack, amqp_url):
    """Every channel in the virtual host, with its connection."""
    answer = stack.rabbitmq.evaluate(
        "[{pid_to_list(proplists:get_value(pid, I)), pid_to_list(proplists:get_value(connection, I))} "
        "|| I <- rabbit_channel:info_all([pid, connection, vhost]), "
        f'proplists:get_value(vhost, I) =:= <<"{name_of(amqp_url)}">>]'
    )
    return dict(re.findall(r'\{"([^"]+)",\s*"([^"]+)"\}', answer))
