"""The relay with a slow broker: every batch makes progress, in order, regardless of the confirm latency."""

import json
import threading
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from slow_proxy import SlowProxy
from support import until

from scheduler.client import Outbox, Relay, tables
from scheduler.client.publisher import PublishOutcome
from scheduler.postgres.connection import connect_host


@pytest.fixture
def outbox(empty_database):
    """A function that writes so many cancels of one job, and the database's URL."""
    with psycopg.connect(empty_database) as database:
        database.execute(tables())

    def write(count, job=None):
        with psycopg.connect(empty_database) as database:
            for number in range(count):
                Outbox(database).cancel(job or uuid4(), correlation_id=str(number))

    write.url = empty_database
    return write


@pytest.fixture
def slow(amqp_url):
    """A proxy before the broker, and the URL that leads through it."""
    parts = urlsplit(amqp_url)
    proxy = SlowProxy((parts.hostname, parts.port))
    proxy.url = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}").geturl()
    yield proxy
    proxy.close()


def left(url):
    with psycopg.connect(url) as database:
        return database.execute("SELECT count(*) FROM scheduler_outbox").fetchone()[0]


@pytest.mark.parametrize("delay", [0.2, 0.5])
def test_a_broker_that_confirms_slowly_gets_every_command_once_and_in_order(outbox, slow, host, delay):
    outbox(250, uuid4())
    slow.delay = delay
    relay = Relay(lambda: connect_host(outbox.url, "outbox"), slow.url).start()
    until(lambda: not left(outbox.url), "an empty outbox")
    relay.stop()
    numbers = [int(host.get("scheduler_inbox")[1].correlation_id) for _ in range(250)]
    assert numbers == list(range(250))
    assert host.drain("scheduler_inbox") == []


def test_a_confirm_may_take_longer_than_a_transaction_may_be_idle(outbox, slow, host):
    relay = Relay(lambda: connect_host(outbox.url, "outbox", idle_in_transaction_session_timeout="6s"), slow.url)
    outbox(1)
    assert relay.run_once() == 1
    slow.delay = 8.0
    outbox(3)
    assert relay.run_once() == 3
    slow.delay = 0.0
    relay.close()
    assert left(outbox.url) == 0
    assert len(host.drain("scheduler_inbox")) == 4


def test_what_was_confirmed_before_the_connection_broke_is_removed(outbox, slow, host):
    relay = Relay(lambda: connect_host(outbox.url, "outbox"), slow.url)
    outbox(1)
    assert relay.run_once() == 1
    host.channel.queue_purge("scheduler_inbox")
    with psycopg.connect(outbox.url) as database:
        for _ in range(100):
            Outbox(database).schedule(uuid4(), "test.job", {"text": "x" * 10_000}, every=60)
    slow.limit = 300_000
    results = []
    thread = threading.Thread(target=lambda: results.append(relay.run_once()))
    thread.start()
    sent = relay._publisher
    until(lambda: 0 < sent._outcomes.count(PublishOutcome.CONFIRMED) < 100 == len(sent._outcomes), "some confirms")
    slow.close()
    thread.join()
    assert 0 < results[0] < 100
    assert left(outbox.url) == 100 - results[0]
    relay.close()


@pytest.mark.parametrize(("headers", "says"), [
    ({"CC": "no list"}, "closed the channel"), ({"traceparent": "x" * 200_000}, "frame_max"),
])
def test_a_command_that_the_broker_refuses_holds_up_no_other(outbox, amqp_url, host, headers, says):
    relay = Relay(lambda: connect_host(outbox.url, "outbox"), amqp_url)
    outbox(2)
    with psycopg.connect(outbox.url) as database:
        database.execute("UPDATE scheduler_outbox SET headers = %s WHERE id = 1", [json.dumps(headers)])
    outbox(2)
    assert relay.run_once() == 3
    relay.close()
    with psycopg.connect(outbox.url) as database:
        [(number, problem)] = database.execute("SELECT id, last_error FROM scheduler_outbox").fetchall()
    assert number == 1
    assert says in problem
    bodies = {json.loads(body)["id"] for body in host.drain("scheduler_inbox")}
    assert len(bodies) == 3
