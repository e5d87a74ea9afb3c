from contextlib import closing, suppress

import pika
import pytest
from support import amqp, patiently, until

from scheduler.domain.errors import Misconfigured, Unavailable
from scheduler.processes import topology_keeper
from scheduler.rabbit import topology
from scheduler.rabbit.link import Link
from scheduler.settings import Settings


def declare(url, queue_type="quorum", due="default"):
    patiently(lambda: topology.declare(url, queue_type=queue_type, due_queue_type=due))


@pytest.fixture
def channel(vhost):
    connection = amqp(vhost)
    yield connection.channel()
    if connection.is_open:
        connection.close()


def test_declares_everything_and_again_harmlessly(vhost, channel):
    declare(vhost)
    declare(vhost)
    for exchange in ("schedule.commands", "schedule.events", "schedule.dead", "schedule.work"):
        channel.exchange_declare(exchange, "topic", durable=True)
    channel.confirm_delivery()
    for key in ("request", "cancel", "pause", "resume", "trigger", "retry", "result", "worker"):
        channel.basic_publish("schedule.commands", key, b"{}", mandatory=True)
    channel.basic_publish("schedule.events", "due", b"{}", mandatory=True)
    channel.basic_publish("schedule.work", "webhook", b"{}", mandatory=True)
    channel.basic_publish("schedule.dead", "any.thing", b"{}", mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("schedule.commands", "other", b"{}", mandatory=True)


def test_a_host_that_declares_mainapp_due_plainly_agrees(vhost, channel):
    declare(vhost)
    channel.queue_declare("mainapp_due", durable=True)


@pytest.mark.parametrize("arguments", [{"x-queue-type": "quorum"}, {"x-max-length": 5}])
def test_an_existing_mainapp_due_of_any_kind_is_left_as_it_is(vhost, channel, arguments):
    channel.queue_declare("mainapp_due", durable=True, arguments=arguments)
    declare(vhost)
    channel.queue_declare("mainapp_due", durable=True, arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("schedule.events", "due", b"{}", mandatory=True)


def test_a_clash_names_both_kinds(vhost):
    declare(vhost, "classic")
    with pytest.raises(Misconfigured) as caught:
        declare(vhost, "quorum")
    for word in ("scheduler_dead", "quorum", "classic", "SCHEDULER_QUEUE_TYPE"):
        assert word in str(caught.value)


@pytest.mark.parametrize("queue_type", ["quorum", "classic", "default"])
def test_each_queue_type_works(vhost, queue_type):
    declare(vhost, queue_type, queue_type)


def test_an_unreachable_broker_is_unavailable():
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        topology.declare("amqp://u:p@127.0.0.1:1/%2F", queue_type="quorum", due_queue_type="default")


def test_pairs_of_entry_and_exit_leave_an_exit_that_is_there_as_it_is(vhost, channel):
    channel.exchange_declare("orders", "topic", durable=False, arguments={"alternate-exchange": "amq.fanout"})
    for _ in range(2):
        topology.declare(vhost, queue_type="quorum", due_queue_type="default",
                         delay_exchanges=(("orders", "topic"), ("mails", "direct")))
    channel.exchange_declare("orders", "topic", durable=False, arguments={"alternate-exchange": "amq.fanout"})
    channel.exchange_declare("mails", "direct", durable=True)
    channel.confirm_delivery()
    for entry in ("schedule.delay", "orders.delay", "mails.delay"):
        for header in ("x-delay", "x-deliver-at", "x-opt-delivery-delay", "x-opt-delivery-time"):
            properties = pika.BasicProperties(headers={header: None})
            channel.basic_publish(entry, "", b"", properties, mandatory=True)
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish(entry, "", b"", pika.BasicProperties(headers={"x-other": 1}), mandatory=True)
    for queue in ("scheduler_delay", "scheduler_delay_orders", "scheduler_delay_mails"):
        until(lambda queue=queue: channel.queue_declare(queue, passive=True).method.message_count == 4, "all four")


@pytest.mark.parametrize("kind", [{"exchange_type": "fanout"}, {"exchange_type": "topic", "internal": True}])
def test_an_exit_of_another_type_or_an_internal_one_is_refused(vhost, channel, kind):
    channel.exchange_declare("orders", durable=True, **kind)
    with pytest.raises(Misconfigured, match="SCHEDULER_DELAY_EXCHANGES"):
        topology.declare(
            vhost, queue_type="quorum", due_queue_type="default", delay_exchanges=(("orders", "topic"),)
        )


@pytest.fixture
def checked_often(monkeypatch):
    monkeypatch.setattr(topology_keeper, "CHECK_SECONDS", 0.1)


@pytest.mark.parametrize("exchange", ["schedule.commands", "schedule.delay", "orders.delay", "schedule.dead"])
@pytest.mark.usefixtures("checked_often")
def test_an_exchange_deleted_while_processes_run_is_declared_again(vhost, channel, exchange):
    settings = Settings(delay_exchanges=(("orders", "topic"),))
    patiently(lambda: topology_keeper.declare(vhost, settings))
    link = patiently(lambda: Link(vhost, "test"))
    channel.exchange_delete(exchange)
    with closing(link), topology_keeper.keep_topology(link, vhost, settings):
        until(lambda: not topology.is_incomplete(link, settings.delay_exchanges), "the exchange exists")
        properties = pika.BasicProperties(headers={"x-delay": 60_000})

        def routed():
            with suppress(pika.exceptions.UnroutableError):
                channel.basic_publish(exchange, "request", b"{}", properties, mandatory=True)
                return True

        channel.confirm_delivery()
        until(routed, "it is bound")
