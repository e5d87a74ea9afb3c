"""Handlers that take longer than the broker waits for an acknowledgement."""

import queue
import re
import threading
from uuid import uuid4

import pytest
from pika.exceptions import ChannelClosedByBroker
from runner_support import Running, due, tracked
from support import DEADLINE, amqp, patiently, until

from scheduler.client.retries import RetryQueues
from scheduler.rabbit import topology

SETTINGS = {"consumer_timeout": 3_000, "channel_tick_interval": 200, "quorum_tick_interval": 500}  # milliseconds


@pytest.fixture
def impatient(stack):
    """RabbitMQ closes a channel that has not acknowledged a delivery for 3 s; 4.3 cancels the consumer."""
    if stack.rabbitmq is None:
        pytest.skip("needs a private broker")
    node = stack.rabbitmq
    before = {name: node.evaluate(f"application:get_env(rabbit, {name}, 5000)") for name in SETTINGS}
    for name, value in SETTINGS.items():
        node.evaluate(f"application:set_env(rabbit, {name}, {value})")
    yield
    for name, value in before.items():
        node.evaluate(f"application:set_env(rabbit, {name}, {value})")


@pytest.fixture
def queue_type(stack, impatient):  # noqa: ARG001 - the broker must be impatient first
    """From RabbitMQ 4.3 on only quorum queues have a consumer timeout."""
    major, minor = re.findall(r"\d+", stack.rabbitmq.evaluate("rabbit_misc:version()"))[:2]
    return "quorum" if (int(major), int(minor)) >= (4, 3) else "classic"


@pytest.fixture
def amqp_url(vhost, queue_type):
    patiently(lambda: topology.declare(vhost, queue_type="quorum", due_queue_type=queue_type))
    return vhost


@pytest.fixture
def running(amqp_url, host):
    made = Running(amqp_url, host)
    made.begun, made.finish = threading.Semaphore(0), threading.Event()

    @made.handlers.on_due("slow")
    def _(event):
        made.begun.release()
        assert made.finish.wait(DEADLINE)
        if event.payload.get("fails"):
            raise RuntimeError("in the end")

    @made.handlers.on_due("quick")
    def _(event):
        made.seen.put(event.event_id)

    yield made
    made.finish.set()
    made.stop()


@pytest.fixture
def timed_out(amqp_url, queue_type):
    """A function that returns once the broker has timed out a consumer as idle as ours."""
    def wait():
        connection, cancelled = amqp(amqp_url), []
        channel = connection.channel()
        channel.add_on_cancel_callback(cancelled.append)
        name = f"idle-{uuid4()}"
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": queue_type})
        channel.basic_consume(name, lambda *_: None)
        channel.basic_publish("", name, b"never acknowledged")
        until(lambda: connection.process_data_events(0.1) or cancelled or not channel.is_open, "a time-out")
        if not cancelled:
            with pytest.raises(ChannelClosedByBroker, match="timed out"):
                raise channel._closing_reason
        connection.close()

    return wait


def closings(caplog):
    return sum("stopped delivering" in record.message for record in caplog.records)


def test_a_long_handler_is_called_once_and_other_events_go_on(running, caplog):
    running.start()
    running.emit(due("slow"))
    assert running.begun.acquire(timeout=DEADLINE)
    for number in (1, 2):
        until(lambda number=number: closings(caplog) >= number, "the channel to be closed")
        sent = running.emit(due("quick"))
        assert str(running.seen.get(timeout=DEADLINE)) == sent["event_id"]
    running.finish.set()
    last = running.emit(due("quick"))
    assert str(running.seen.get(timeout=DEADLINE)) == last["event_id"]
    running.stop()
    assert running.depth("mainapp_due") == 0
    assert not running.begun.acquire(blocking=False)


def test_a_long_handler_that_fails_goes_to_the_retry_queue_once(running, caplog):
    running.options["delays"] = (3600.0,)
    running.start()
    running.emit(due("slow", fails=True))
    assert running.begun.acquire(timeout=DEADLINE)
    until(lambda: closings(caplog), "the channel to be closed")
    running.finish.set()
    until(lambda: running.depth("mainapp_due_retry_3600000ms") == 1, "a copy to retry")
    running.stop()
    assert (running.depth("mainapp_due"), running.depth("mainapp_due_retry_3600000ms")) == (0, 1)


def test_the_runner_is_not_ready_while_it_does_not_consume(running, monkeypatch):
    states = queue.SimpleQueue()
    running.start()
    declare = RetryQueues.declare
    ready = running.runner.ready
    monkeypatch.setattr(RetryQueues, "declare", lambda *args: states.put(ready.is_set()) or declare(*args))
    running.emit(due("slow"))
    assert states.get(timeout=DEADLINE) is False
    until(ready.is_set, "ready again")
    assert running.consumers("mainapp_due") == 1


def test_a_tracked_event_is_acknowledged_when_running_is_confirmed(running, caplog, timed_out):
    running.start()
    sent = running.emit(tracked(job_type="slow"))
    assert running.begun.acquire(timeout=DEADLINE)
    assert running.results("running")["heartbeat"] > 1
    timed_out()
    timed_out()
    assert closings(caplog) == 0
    running.finish.set()
    assert running.results("succeeded")["event_id"] == sent["event_id"]
    running.stop()
    assert running.depth("mainapp_due") == 0
    assert not running.begun.acquire(blocking=False)


def test_a_full_runner_leaves_further_events_to_others(amqp_url, host, timed_out):
    running = Running(amqp_url, host, workers=1, prefetch=1)
    begun, finish = threading.Semaphore(0), threading.Event()

    @running.handlers.on_due("slow")
    def _(_event):
        begun.release()
        assert finish.wait(DEADLINE)

    running.start()
    running.emit(tracked(job_type="slow"))
    assert begun.acquire(timeout=DEADLINE)
    running.emit(tracked(job_type="slow"))
    timed_out()
    until(lambda: running.consumers("mainapp_due") == 0, "the consumer to pause")
    assert running.depth("mainapp_due") == 1
    assert running.runner.ready.is_set()
    finish.set()
    assert begun.acquire(timeout=DEADLINE)
    running.stop()
    assert running.depth("mainapp_due") == 0
