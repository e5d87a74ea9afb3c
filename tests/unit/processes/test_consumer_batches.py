"""Batches stored concurrently are acknowledged in the order of delivery, or not at all."""

import threading
from types import SimpleNamespace
from uuid import uuid4

import pika
import pytest

from scheduler.commands.store_batches import StoredBatch
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import ScheduleCancel
from scheduler.processes import consumer as module
from scheduler.processes.consumer import Consumer
from scheduler.processes.runtime import Stop
from scheduler.rabbit.delivery_parser import Delivery

STORED = StoredBatch((), 0, 0)


class Queue:
    """A fake inbox: returns these batches and records acknowledgements."""

    def __init__(self, *batches):
        self.batches, self.acked = list(batches), []

    def take(self, _, timeout):  # noqa: ARG002 - the real one's
        return self.batches.pop(0) if self.batches else []

    def ack(self, batch, _refused=()):
        self.acked.append(batch[-1].tag)


def batch(first, count, job_id=None):
    deliveries = []
    for tag in range(first, first + count):
        deliveries.append(Delivery(tag, "cancel", pika.BasicProperties(), b"", redelivered=False, size=0))
        command = ScheduleCancel(id=job_id or uuid4())
        deliveries[-1].read = Incoming(command, str(command.id), correlation_id=tag)
    return deliveries


@pytest.fixture
def served(monkeypatch):
    monkeypatch.setattr(module, "BATCH", 3)

    def serve(queue, storing):
        """Serve the queue until it is empty; `storing` returns the result for the batch that starts with a tag."""
        stop = Stop()
        health = SimpleNamespace(turn=lambda: None, found=lambda _: None, missing=lambda *_: None)
        settings = SimpleNamespace(max_payload_bytes=1000, poll_interval_ms=500, database_url="", amqp_urls=())
        consumer = Consumer(settings, stop, health)
        consumer._storing.store = lambda _session, commands, _check: storing(commands[0].correlation_id, stop)
        consumer._finish = lambda deliveries, _stored, inbox, _reply_sender: inbox.ack(deliveries)
        try:
            publisher = SimpleNamespace(refused_seconds=0, retry_refused=lambda: None)
            consumer._serve(queue, publisher, SimpleNamespace(check_open=None))
        finally:
            consumer.close()
        assert len(consumer._free) == module.SESSIONS
        return queue.acked

    return serve


def done(tag, stop, last):
    if tag == last:
        stop.set()
    return STORED


def test_batches_are_acknowledged_in_the_order_of_delivery(served):
    queue = Queue(batch(1, 3), batch(4, 3), batch(7, 3), batch(10, 1))
    assert served(queue, lambda *at: done(*at, last=10)) == [3, 6, 9, 10]


def test_a_batch_left_unstored_by_a_stop_is_not_acknowledged_with_a_later_one(served):
    both = threading.Barrier(2)

    def storing(tag, stop):
        both.wait(60)
        stop.set()
        return STORED if tag == 4 else None

    assert served(Queue(batch(1, 3), batch(4, 3)), storing) == []


def test_a_batch_for_the_same_job_waits_for_the_previous_one(served):
    job_id, landed = uuid4(), []
    queue = Queue(batch(1, 3, job_id), batch(4, 3, job_id), batch(7, 1))

    def storing(tag, stop):
        landed.append((tag, list(queue.acked)))
        return done(tag, stop, last=7)

    assert served(queue, storing) == [3, 6, 7]
    assert dict(landed)[4] == [3]
