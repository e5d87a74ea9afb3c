"""Replies reach their queues, and a queue or an address of one client affects no other client."""

import pytest
from support import until

from scheduler.dev.servers.vhosts import name_of
from scheduler.rabbit import reply_sender
from scheduler.rabbit.frames import json_message
from scheduler.rabbit.link import Link
from scheduler.rabbit.reply_sender import Reply, ReplySender

# RabbitMQ 3 cannot decode it and closes the connection.
CLOSES_CONNECTION = "amq.rabbitmq.reply-to.g2QAA2Zvbw==.k1"


@pytest.fixture
def links():
    return []


@pytest.fixture
def sender(amqp_url, links):
    def connect():
        links.append(Link(amqp_url, "replies"))
        return links[-1]

    made = ReplySender(connect)
    yield made
    made.close()


def reply(client, queue, body=b"{}"):
    return Reply(client, json_message("", queue, "ScheduleAccepted", body, correlation_id=None, timestamp=0))


def settled(sender):
    until(lambda: sender._count == 0, "every reply confirmed or dropped")


@pytest.fixture
def queue(host):
    return host.channel.queue_declare("", exclusive=True).method.queue


def test_a_reply_that_closes_the_connection_is_dropped_and_no_other_is_lost(sender, links, host, queue):
    bodies = [b"%d" % number for number in range(50)]
    replies = [reply(f"client {number % 5}", queue, body) for number, body in enumerate(bodies)]
    sender.send([*replies[:20], reply("hostile", CLOSES_CONNECTION), *replies[20:]])
    settled(sender)
    assert set(host.drain(queue)) == set(bodies)
    assert len(links) <= 3
    sender.send([reply("hostile", CLOSES_CONNECTION), reply("client 1", queue, b"later")])
    settled(sender)
    assert host.drain(queue) == [b"later"]


def test_replies_survive_a_lost_connection(sender, links, host, queue):
    sender.send([reply("client", queue, b"first")])
    settled(sender)
    links[0].close()
    sender.send([reply("client", queue, b"second")])
    settled(sender)
    assert host.drain(queue) == [b"first", b"second"]


@pytest.fixture
def suspended(stack, host, amqp_url):
    """A queue that confirms nothing, and a function that resumes it."""
    if stack.rabbitmq is None:
        pytest.skip("needs a private server")
    name = host.channel.queue_declare("", exclusive=True).method.queue
    process = (f'begin {{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{name_of(amqp_url)}">>, queue, '
               f'<<"{name}">>)), amqqueue:get_pid(Q) end')
    stack.rabbitmq.evaluate(f"sys:suspend({process})")
    yield name, lambda: stack.rabbitmq.evaluate(f"sys:resume({process})")
    stack.rabbitmq.evaluate(f"sys:resume({process})")


@pytest.fixture
def silent(suspended):
    return suspended[0]


def test_no_reply_is_dropped_while_a_queue_is_slow_for_a_moment(sender, host, suspended):
    name, resume = suspended
    for number in range(5):  # the first marks the client as slow
        sender.send([reply("client", name, b"%d" % (number * 200 + offset)) for offset in range(200)])
    resume()
    settled(sender)
    assert [int(body) for body in host.drain(name)] == list(range(1000))


def test_a_queue_that_does_not_confirm_delays_no_other_client(sender, host, queue, silent, monkeypatch):
    monkeypatch.setattr(reply_sender, "STALL_SECONDS", 5.0)
    for number in range(20):
        sender.send([reply("hostile", silent) for _ in range(100)])
        sender.send([reply("client", queue, b"%d" % number)])
    host.get(queue)
    assert "hostile" in sender._slow
    assert sender._unconfirmed["hostile"] <= reply_sender.WINDOW
    settled(sender)  # what the silent queue did not confirm was dropped
    assert {int(body) for body in host.drain(queue)} == set(range(1, 20))
