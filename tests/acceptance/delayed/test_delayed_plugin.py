"""The plugin's own tests, run against the sidecar: its users must get the same behaviour."""

import random
from datetime import timedelta

import pika
import pytest
from delayed_support import Shop, bodies, frozen, stored, waiting
from support import Sidecar, patiently, until, utc

from scheduler import settings
from scheduler.dev.servers import start_stack
from scheduler.domain.errors import Misconfigured
from scheduler.postgres.migrate import migrate

DELAYS = (500, 100, 300, 200, 100, 400)


@pytest.fixture
def send_all(shop, sidecar):
    """Publish a message for each delay, and return them in the expected order of delivery.

    That is the order of their instants, regardless of the time to publish and store them: nothing is delivered
    before all are stored.
    """
    def send(exchange, key, write=int):
        [_, producer] = sidecar.processes
        with frozen(producer):
            for delay in DELAYS:
                shop.send(key, b"%d" % delay, exchange, x_delay=write(delay))
            rows = stored(sidecar, len(DELAYS))
        for row in rows:
            assert row["due_at"] - row["stored_at"] == timedelta(milliseconds=int(bytes(row["body"])))
        return [bytes(row["body"]) for row in rows]

    return send


def test_an_unknown_exchange_type_is_rejected():
    with pytest.raises(Misconfigured, match="SCHEDULER_DELAY_EXCHANGES"):
        settings.load({"SCHEDULER_DELAY_EXCHANGES": "orders:nonsense"})


def test_the_plugins_type_is_not_an_exit_type():
    with pytest.raises(Misconfigured, match="topic, direct, fanout, headers"):
        settings.load({"SCHEDULER_DELAY_EXCHANGES": "orders:x-delayed-message"})


@pytest.mark.parametrize("pattern", ["a.b.c", "a.*.c", "a.#"])
def test_a_topic_exit_delivers_each_match_once(shop, send_all, pattern):
    queue, other = shop.queue("orders", pattern), shop.queue("orders", "b.#")
    in_order = send_all("orders.delay", "a.b.c")
    assert bodies(shop.take(queue, len(DELAYS))) == in_order
    assert not shop.drain(queue)
    assert not shop.drain(other)
    shop.channel.queue_delete(queue)


def test_direct(shop, send_all):
    queue, other = shop.queue("mails", "here"), shop.queue("mails", "there")
    in_order = send_all("mails.delay", "here")
    assert bodies(shop.take(queue, len(DELAYS))) == in_order
    assert not shop.drain(other)


def test_fanout(shop, send_all):
    queues = [shop.queue("news", ""), shop.queue("news", "")]
    in_order = send_all("news.delay", "any")
    for queue in queues:
        assert bodies(shop.take(queue, len(DELAYS))) == in_order


def test_chained_entries_forward_undelayed_messages(shop):
    queue = shop.queue("second", "e2e.none")
    shop.channel.exchange_bind("second.delay", "orders", "e2e.none")
    shop.send("e2e.none", b"at once", "orders.delay")
    assert bodies(shop.take(queue, 1)) == [b"at once"]


def test_chained_entries_delay_once(shop, sidecar, send_all):
    queue = shop.queue("second", "e2e.delay")
    shop.channel.exchange_bind("second.delay", "orders", "e2e.delay")
    sidecar.sql("CREATE TABLE second_time (late interval)")
    sidecar.sql("CREATE RULE again AS ON DELETE TO delayed_messages WHERE old.exchange = 'second' "
                "DO INSERT INTO second_time VALUES (old.due_at - old.stored_at)")
    in_order = send_all("orders.delay", "e2e.delay")
    taken = shop.take(queue, len(DELAYS))
    assert bodies(taken) == in_order
    assert [properties.headers["x-delay"] for _, properties, _ in taken] == [-int(body) for _, _, body in taken]
    # Each was stored a second time, and was due at once.
    until(lambda: not waiting(sidecar), "nothing left")
    assert sidecar.sql("SELECT count(*), max(late) FROM second_time") == [{"count": 6, "max": timedelta()}]
    sidecar.sql("DROP RULE again ON delayed_messages")


def test_order(shop, send_all):
    queue = shop.queue()
    in_order = send_all("schedule.delay", queue)
    assert bodies(shop.take(queue, len(DELAYS))) == in_order


def test_pending_messages_are_counted(shop, sidecar):
    queue = shop.queue()
    [consumer, _] = sidecar.processes
    until(lambda: consumer.metric("scheduler_delayed_messages") == 0, "nothing waiting")
    for _ in range(7):
        shop.send(queue, b"", x_delay=3_600_000)
    until(lambda: consumer.metric("scheduler_delayed_messages") == 7, "seven waiting")
    sidecar.sql("DELETE FROM delayed_messages")
    until(lambda: consumer.metric("scheduler_delayed_messages") == 0, "none left")


def test_a_delay_as_text_is_accepted(shop, send_all):
    queue = shop.queue()
    in_order = send_all("schedule.delay", queue, write=str)
    assert bodies(shop.take(queue, len(DELAYS))) == in_order


def test_a_deleted_entry_blocks_no_other(shop, sidecar):
    queue = shop.queue()
    with frozen(sidecar.processes[1]):
        for each in (b"1", b"2", b"3"):
            shop.send(queue, each, x_delay=100)
        stored(sidecar, 3)
        sidecar.sql("DELETE FROM delayed_messages WHERE body = '2'")
    assert bodies(shop.take(queue, 2)) == [b"1", b"3"]


@pytest.mark.parametrize("after_they_are_due", [False, True], ids=["before", "after"])
def test_seven_delays_survive_a_restart_of_the_broker(breakable, after_they_are_due):
    """It stops before any of them is due, and restarts when some or all of them are."""
    stack, sidecar = breakable
    delays = random.Random(7).sample(range(1, 16), 7)
    shop = Shop(sidecar.amqp_url)
    queue = shop.queue()
    scale = 50 if after_they_are_due else 500
    with frozen(sidecar.processes[1]):  # regardless of the duration, none is delivered before all are stored
        for delay in delays:
            shop.send(queue, b"%d" % delay, x_delay=delay * scale + 1500)
        shop.connection.close()
        stored(sidecar, len(delays))
    stack.rabbitmq.stop("fast")
    if after_they_are_due:
        until(lambda: all(row["due_at"] < utc() for row in waiting(sidecar)), "all due")
    stack.rabbitmq.start()
    shop = Shop(patiently_url(sidecar.amqp_url))
    found, sent = set(), {b"%d" % delay for delay in delays}
    while found < sent:  # messages in flight when the broker stopped may arrive twice
        found |= set(bodies(shop.take(queue, 1)))
    shop.close()
    assert found == sent
    until(lambda: not waiting(sidecar), "nothing left")


def patiently_url(url):
    def connected():
        try:
            pika.BlockingConnection(pika.URLParameters(url)).close()
        except pika.exceptions.AMQPError:
            return None
        return url

    return until(connected, "the broker to be back")


@pytest.fixture(scope="module")
def breakable():
    """Private servers, because they are stopped."""
    with start_stack(purpose="delayed") as stack:
        database = stack.create_database()
        patiently(lambda: migrate(database))
        sidecar = Sidecar(database, stack.amqp_url).up()
        yield stack, sidecar
        codes = sidecar.close()
        assert codes == [0] * len(codes), [process.raw[-3:] for process in sidecar.processes]
