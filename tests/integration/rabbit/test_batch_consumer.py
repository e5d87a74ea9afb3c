"""Queued messages leave the inbox unchanged, through the fast path and through pika."""

import random
from urllib.parse import urlsplit

import pika

from scheduler.rabbit import batch_consumer as inbox_module
from scheduler.rabbit.batch_consumer import BatchConsumer, DeliveryWindow
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.link import Link
from tests.support import until
from torture.proxy import Proxy


def test_every_delivery_arrives_once_in_order_whatever_its_size(amqp_url, host):
    sizes = [random.Random(7).choice([0, 1, 30, 500, 4088, 20_000, 131_064, 131_065, 300_000]) for _ in range(120)]
    bodies = [bytes([at % 251]) * size for at, size in enumerate(sizes)]
    for at, body in enumerate(bodies):
        host.publish("request", body, headers={"at": at} if at % 3 else None, correlation_id=f"c{at}")
    link = Link(amqp_url, "test")
    try:
        inbox = BatchConsumer(link, "scheduler_inbox", 50, lambda delivery: len(delivery.body))
        got = []

        def all_there():
            batch = inbox.take(30, timeout=0.5)
            if batch:
                inbox.ack(batch)
            got.extend(batch)
            return len(got) >= len(bodies)

        until(all_there, "all commands")
    finally:
        link.close()
    assert [each.body for each in got] == bodies
    assert [each.read for each in got] == sizes
    assert [each.properties.correlation_id for each in got] == [f"c{at}" for at in range(len(bodies))]
    assert {each.routing_key for each in got} == {"request"}
    assert host.drain("scheduler_inbox") == []


def test_unacknowledged_bytes_are_bounded(amqp_url, host, monkeypatch):
    monkeypatch.setattr(inbox_module, "MAX_BYTES", most := 200_000)
    choose = random.Random(11)
    # Long runs of small commands let the window grow; then large ones come, in one frame and in several.
    sizes = [10] * 300 + [choose.choice([10, 20_000, 140_000, 500_000]) for _ in range(60)] + [10] * 200
    for at, size in enumerate(sizes):
        host.publish("request", b"%06d" % at + b"x" * size)
    link = Link(amqp_url, "test")
    held: list[Delivery] = []
    windows, largest = set(), 0
    try:
        inbox = BatchConsumer(link, "scheduler_inbox", 200, lambda _: None)
        got = []

        def all_there():
            nonlocal largest
            held.extend(inbox.take(20, timeout=0.1))
            largest = max(largest, inbox._bytes)
            windows.add(inbox._size)
            # Hold as much as comes: acknowledge only when nothing more does, and then not all of it.
            if held and not (more := inbox.take(50, timeout=0.02)):
                batch, held[:] = held[:30], held[30:]
                got.extend(int(each.body[:6]) for each in batch)
                inbox.ack(batch)
            elif held:
                held.extend(more)
            return len(got) >= len(sizes)

        until(all_there, "all commands", 60)
    finally:
        link.close()
    assert sorted(got) == list(range(len(sizes)))
    assert largest <= 4 * most + 500_006
    assert 200 in windows
    assert windows - {1, 8, 64, 200}, "it was never made smaller"
    assert host.drain("scheduler_inbox") == []


def test_deliveries_in_flight_keep_their_order_while_the_window_closes(amqp_url, host, monkeypatch):
    monkeypatch.setattr(inbox_module, "MAX_BYTES", 500_000)
    # Of eight large commands, each in several frames, the fourth is one too many; the others are in flight.
    sizes = [10] * 33 + [140_000] * 20
    for at, size in enumerate(sizes):
        host.publish("request", b"%06d" % at + b"x" * size)
    link = Link(amqp_url, "test")
    windows = set()
    try:
        inbox = BatchConsumer(link, "scheduler_inbox", 8, lambda _: None)
        got, held = [], []

        def all_there():
            held.extend(inbox.take(3, timeout=0.2))
            windows.add(inbox._size)
            # Whole windows, so that the first eight large ones come in one.
            if len(held) >= min(inbox._size, len(sizes) - len(got)):
                inbox.ack(held)
                got.extend(held)
                held.clear()
            return len(got) >= len(sizes)

        until(all_there, "all commands")
    finally:
        link.close()
    assert [int(each.body[:6]) for each in got] == list(range(len(sizes)))
    assert not any(each.redelivered for each in got)
    assert windows - {1, 8}, "it was never made smaller"


def test_a_closed_inbox_leaves_no_callback_on_its_link(amqp_url, host):
    host.publish("request", b"x")
    link = Link(amqp_url, "test")
    try:
        before = list(link._on_close)
        inbox = BatchConsumer(link, "scheduler_inbox", 50, lambda _: None)
        until(lambda: inbox.take(5, timeout=0.5), "a command")
        inbox.give_back()
        # pika's own callbacks of a channel are not in that list.
        assert link._on_close == before
    finally:
        link.close()


def test_requeued_messages_are_redelivered_as_such(amqp_url, host):
    for number in range(20):
        host.publish("request", b"%d" % number)
    link = Link(amqp_url, "test")
    try:
        inbox = BatchConsumer(link, "scheduler_inbox", 50, lambda _: None)
        first = until(lambda: inbox.take(5, timeout=0.5), "a command")
        assert not first[0].redelivered
        inbox.give_back()
        second = BatchConsumer(link, "scheduler_inbox", 50, lambda _: None)

        def again():
            """The queue decides the order."""
            for each in (found := second.take(1, timeout=0.5)):
                if not each.redelivered:
                    second.ack(found)
                else:
                    return each
            return None

        assert until(again, "it again").deliveries_before == 1
    finally:
        link.close()


def test_a_long_silence_of_deliveries_is_not_taken_for_a_dead_connection(amqp_url, host):
    """The heartbeat counts all received bytes, including those that pika never parsed."""
    link = Link(amqp_url, "test")
    try:
        inbox = BatchConsumer(link, "scheduler_inbox", 50, lambda _: None)
        before, seen = link._connection.bytes_received, []

        def enough():
            host.publish("request", b"x" * 100)
            batch = inbox.take(50, timeout=0.1)
            if batch:
                inbox.ack(batch)
            seen.extend(batch)
            return len(seen) >= 60

        until(enough, "sixty commands")
        assert link._connection.bytes_received - before > 60 * 100
    finally:
        link.close()
    assert isinstance(seen[0].properties, pika.BasicProperties)


def test_set_aside_messages_do_not_use_the_window(amqp_url, host):
    for at in range(100):
        host.publish("request", b"%d" % at)
    link = Link(amqp_url, "test")
    try:
        inbox = BatchConsumer(link, "scheduler_inbox", 4, lambda delivery: int(delivery.body))
        aside, rest = [], []

        def all_there():
            batch = inbox.take(3, timeout=0.5)
            odd = [each for each in batch if each.read % 2]
            even = [each for each in batch if not each.read % 2]
            if odd:
                inbox.set_aside(odd)
            if even:
                inbox.ack(even)
            aside.extend(odd)
            rest.extend(even)
            return len(aside) + len(rest) == 100

        until(all_there, "all commands")
        assert [message.read for message in rest] == list(range(0, 100, 2))
        assert [each.read for each in aside] == list(range(1, 100, 2))
        assert not any(message.redelivered for message in (*aside, *rest))
        inbox.ack(aside[10:20], rejected=aside[12:13])
        inbox.ack(aside[:10])
        inbox.give_back()
    finally:
        link.close()
    assert sorted(map(int, host.drain("scheduler_inbox"))) == [each.read for each in aside[20:]]


def test_set_aside_messages_are_bounded(amqp_url, host, monkeypatch):
    monkeypatch.setattr(inbox_module, "MAX_SET_ASIDE", 10)
    for at in range(100):
        host.publish("request", b"%d" % at)
    link = Link(amqp_url, "test")
    try:
        inbox = BatchConsumer(link, "scheduler_inbox", 4, lambda delivery: int(delivery.body))
        aside = []

        def most():
            batch = inbox.take(3, timeout=0.5)
            if batch:
                inbox.set_aside(batch)
            aside.extend(batch)
            return len(aside) >= 10

        until(most, "the most that are set aside")
        for _ in range(3):
            most()
        assert len(aside) <= 10 + 4
        # Once those are acknowledged, the others come.
        inbox.ack(aside)
        got = [*aside]

        def others():
            batch = inbox.take(10, timeout=0.5)
            if batch:
                inbox.ack(batch)
            got.extend(batch)
            return len(got) == 100

        until(others, "all commands")
    finally:
        link.close()
    assert host.drain("scheduler_inbox") == []


def test_the_window_grows_where_the_connection_is_slow(amqp_url, host):
    """Acknowledgements take so long that the window is never seen full, although the queue is."""
    proxy = Proxy(lambda _: None)
    port = proxy.open("broker", urlsplit(amqp_url).port)
    link = Link(amqp_url.replace(f":{urlsplit(amqp_url).port}/", f":{port}/"), "test")
    try:
        inbox = BatchConsumer(link, "scheduler_inbox", 512, lambda _: None)
        host.publish("request", b"first")  # it opens a window of eight
        [first] = until(lambda: inbox.take(1, timeout=1), "the first command")
        inbox.ack([first])
        grown = (inbox_module.GROWTH, DeliveryWindow.OPEN)
        until(lambda: (inbox._size, inbox._window) == grown, "a larger window")
        host.publish("request", b"alone")
        [alone] = until(lambda: inbox.take(1, timeout=1), "the next command")
        proxy.do("set", "broker", delay=0.5)
        inbox.ack([alone])
        for number in range(100):
            host.publish("request", b"%d" % number)
        got = []

        def all_there():
            if batch := inbox.take(1, timeout=1):
                inbox.ack(batch)
            got.extend(delivery.body for delivery in batch)
            return len(got) == 100

        until(all_there, "all commands")
        assert inbox._size > inbox_module.GROWTH
        assert got == [b"%d" % number for number in range(100)]
    finally:
        link.close()
        proxy.close()
