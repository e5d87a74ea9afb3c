"""A result stays with its worker until the broker has it."""

import json
import random
import threading
from contextlib import suppress

import pytest
from support import until

from scheduler.domain.errors import Unavailable
from scheduler.rabbit.link import Link
from scheduler.rabbit.work_queue import WorkQueue
from scheduler.workers.result_publisher import PendingResult, ResultPublisher


@pytest.fixture
def link(amqp_url):
    made = Link(amqp_url, "test")
    yield made
    made.close()


def test_results_are_confirmed_before_their_deliveries_are_acknowledged(link, host):
    for number in range(50):
        host.publish("webhook", {"number": number}, exchange="schedule.work")
    reporter, came, told = ResultPublisher(), [], []
    reporter.attach(link)
    queue = WorkQueue(link, "scheduler_webhooks", 10, lambda *each: came.append(each), quick=True)

    def work():
        # In any order: the newest first.
        while came:
            by, delivery = came.pop()
            assert by is queue, "the first come before there is a queue to acknowledge them with"
            told.append(delivery.body)
            reporter.report([PendingResult(delivery.body, lambda tag=delivery.tag: queue.ack([tag]))])
        return len(told) == 50 and reporter.idle

    until(work, "all 50 reported")
    with suppress(Unavailable):  # a broker that is slow to answer that; its link is closed all the same
        queue.stop()
    assert {json.loads(body)["number"] for body in host.drain("scheduler_results")} == set(range(50))
    link.close()
    assert host.drain("scheduler_webhooks") == []


def test_unroutable_results_are_kept(link, host):
    host.channel.queue_unbind("scheduler_results", "schedule.commands", "result")
    reporter, done = ResultPublisher(), threading.Event()
    reporter.attach(link)
    reporter.report([PendingResult(b"{}", done.set)])
    until(lambda: reporter._pending and not reporter._unconfirmed, "the broker's refusal")
    assert not done.is_set()
    host.channel.queue_bind("scheduler_results", "schedule.commands", "result")
    until(lambda: (reporter.turn(), done.is_set())[1], "the confirm")
    assert host.drain("scheduler_results") == [b"{}"]


def test_results_without_a_connection_are_published_on_the_next(link, amqp_url, host):
    reporter = ResultPublisher()
    reporter.report([PendingResult(b'"before"')])
    reporter.attach(link)
    until(lambda: reporter.idle, "the first confirm")
    link.close()
    reporter.report([PendingResult(b'"between"')])
    assert not reporter.idle
    reporter.detach()
    second = Link(amqp_url, "second")
    try:
        reporter.attach(second)
        until(lambda: reporter.idle, "the second confirm")
    finally:
        second.close()
    assert host.drain("scheduler_results") == [b'"before"', b'"between"']


def test_deliveries_are_acknowledged_in_any_order(link, host):
    for number in range(100):
        host.publish("webhook", {"number": number}, exchange="schedule.work")
    came = []
    queue = WorkQueue(link, "scheduler_webhooks", 200, lambda _, each: came.append(each), quick=True)
    until(lambda: len(came) == 100, "all 100")
    kept = {json.loads(each.body)["number"]: each.tag for each in came}[42]
    tags = [each.tag for each in came if each.tag != kept]
    random.Random(7).shuffle(tags)
    while tags:
        # Now one, now several; those before the one that is kept are soon acknowledged together.
        batch, tags = tags[: 1 + len(tags) % 7], tags[1 + len(tags) % 7 :]
        queue.ack(batch)
    with suppress(Unavailable):  # a broker that is slow to answer that; its link is closed all the same
        queue.stop()
    assert link.closed is None
    link.close()
    assert json.loads(host.get("scheduler_webhooks")[2]) == {"number": 42}
    assert host.drain("scheduler_webhooks") == []
