"""Handlers for mainapp_due: acknowledged after success, retried after failure, never lost."""

import json
import socket
import threading

import pika
import pytest
from runner_support import FAST, Reminder, Running, due
from support import DEADLINE, until

from scheduler.client import Due


@pytest.fixture
def running(amqp_url, host):
    made = Running(amqp_url, host)
    yield made
    made.stop()


def test_a_handled_event_is_acknowledged_and_its_payload_is_typed(running):
    @running.handlers.on_due("invoice.reminder", Reminder)
    def _(event: Due[Reminder]):
        running.seen.put(event)

    running.start()
    sent = running.emit(due(invoice=42))
    event = running.seen.get(timeout=DEADLINE)
    assert event.payload == Reminder(invoice=42)
    assert str(event.event_id) == sent["event_id"]
    running.stop()
    assert running.depth("mainapp_due") == 0


def test_a_function_is_called_in_the_thread_before_each_handler(running):
    prepared = threading.local()
    calls = iter([RuntimeError("database unreachable"), None])

    def before():
        problem = next(calls)
        if problem is not None:
            raise problem
        prepared.ready = True

    @running.handlers.on_due("invoice.reminder")
    def _(_):
        running.seen.put(prepared.ready)

    running.options["before"] = before
    running.start()
    running.emit(due())
    assert running.seen.get(timeout=DEADLINE)  # at the second attempt: the first counted as failed
    running.stop()
    assert (running.depth("mainapp_due"), running.depth("mainapp_due_dead"), list(calls)) == (0, 0, [])


def test_a_failed_event_is_retried_until_it_succeeds(running):
    @running.handlers.on_due("invoice.reminder")
    def _(event):
        running.seen.put(event.event_id)
        if running.seen.qsize() < 3:
            raise RuntimeError("mail server unreachable")

    running.start()
    running.emit(due())
    until(lambda: running.seen.qsize() == 3, "three calls")
    assert len({running.seen.get() for _ in range(3)}) == 1
    running.stop()
    assert (running.depth("mainapp_due"), running.depth("mainapp_due_dead")) == (0, 0)


def test_a_handler_that_keeps_failing_leaves_a_dead_letter_with_the_traceback(running):
    @running.handlers.on_due("invoice.reminder")
    def remind(event):
        running.seen.put(event)
        raise RuntimeError("mail server unreachable")

    running.start()
    sent = running.emit(due(invoice=42))
    _, properties, body = running.host.get("mainapp_due_dead")
    assert json.loads(body) == sent
    assert running.seen.qsize() == 1 + len(FAST)
    assert properties.message_id == sent["event_id"]
    assert properties.headers["x-attempt"] == 3
    assert properties.headers["x-error"] == "RuntimeError: mail server unreachable"
    assert "in remind" in properties.headers["x-traceback"]
    running.stop()
    assert running.depth("mainapp_due") == 0


def test_a_payload_that_does_not_fit_its_model_is_dead_at_once(running):
    running.handlers.on_due("invoice.reminder", Reminder)(running.seen.put)
    running.start()
    running.emit(due(invoice="forty-two"))
    _, properties, _ = running.host.get("mainapp_due_dead")
    assert properties.headers["x-attempt"] == 1
    assert "UnreadableEvent" in properties.headers["x-error"]
    running.host.publish("mainapp_due", b"not json", exchange="")
    running.host.get("mainapp_due_dead")
    assert running.seen.empty()


def test_a_validation_error_inside_a_handler_is_retried(running):
    @running.handlers.on_due("invoice.reminder")
    def _(event):
        running.seen.put(event)
        Reminder.model_validate({})

    running.start()
    running.emit(due())
    assert running.host.get("mainapp_due_dead")[1].headers["x-attempt"] == 3


@pytest.mark.parametrize(("unknown", "attempts"), [("retry", 3), ("dead", 1)])
def test_unknown_job_types_follow_the_unknown_option(amqp_url, host, caplog, unknown, attempts):
    running = Running(amqp_url, host, unknown=unknown).start()
    running.emit(due("no.such"))
    assert host.get("mainapp_due_dead")[1].headers["x-attempt"] == attempts
    running.stop()
    assert "no handler for 'no.such'" in caplog.text
    assert "Traceback" not in caplog.text  # no handler ran


def test_an_unknown_job_type_can_be_dropped(amqp_url, host):
    running = Running(amqp_url, host, unknown="drop", workers=1)
    running.handlers.on_due("known")(running.seen.put)
    running.start()
    running.emit(due("no.such"))
    running.emit(due("known"))
    running.seen.get(timeout=DEADLINE)
    running.stop()
    assert (running.depth("mainapp_due"), running.depth("mainapp_due_dead")) == (0, 0)


def test_several_workers_handle_events_at_the_same_time(running):
    together = threading.Barrier(4)

    @running.handlers.on_due("invoice.reminder")
    def _(event):
        together.wait(DEADLINE)
        running.seen.put(event)

    running.start()
    for _ in range(4):
        running.emit(due())
    for _ in range(4):
        running.seen.get(timeout=DEADLINE)


def test_a_stop_finishes_running_handlers_and_requeues_the_rest(amqp_url, host):
    running = Running(amqp_url, host, workers=1, prefetch=3)
    begun, finish = threading.Event(), threading.Event()

    @running.handlers.on_due("invoice.reminder")
    def _(event):
        begun.set()
        assert finish.wait(DEADLINE)
        running.seen.put(event)

    for _ in range(3):
        running.emit(due())
    running.start()
    assert begun.wait(DEADLINE)
    running.runner.stop()
    until(lambda: running.consumers("mainapp_due") == 0, "no more events taken")
    finish.set()
    running.stop()
    assert running.seen.qsize() == 1
    until(lambda: running.depth("mainapp_due") == 2, "two events back in the queue")


def test_the_runner_recovers_from_a_deleted_queue(running):
    begun, finish = threading.Semaphore(0), threading.Event()

    @running.handlers.on_due("invoice.reminder")
    def _(event):
        begun.release()
        assert finish.wait(DEADLINE)
        running.seen.put(event.event_id)

    running.start()
    running.emit(due())
    assert begun.acquire(timeout=DEADLINE)
    running.host.channel.queue_delete("mainapp_due_dead")
    running.host.channel.queue_delete("mainapp_due")
    running.host.channel.queue_declare("mainapp_due", durable=True)
    running.emit(due())
    assert begun.acquire(timeout=DEADLINE)
    finish.set()
    running.seen.get(timeout=DEADLINE)
    running.seen.get(timeout=DEADLINE)
    until(running.runner.ready.is_set, "ready again")
    running.stop()
    assert running.depth("mainapp_due") == 0


def test_an_event_whose_connection_is_lost_is_delivered_again_and_not_handled_twice(running):
    @running.handlers.on_due("invoice.reminder")
    def _(event):
        running.seen.put(event.event_id)
        if running.seen.qsize() == 1:
            sockets[0].shutdown(socket.SHUT_RDWR)

    sockets = []
    connect = pika.BlockingConnection

    def noted(*args):
        connection = connect(*args)
        sockets.append(connection._impl._transport._sock)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pika, "BlockingConnection", noted)
        running.start()
        running.emit(due())
        until(lambda: len(sockets) > 1 and running.runner.ready.is_set(), "another connection")
        running.emit(due())
        until(lambda: running.seen.qsize() == 2, "the next event")
    assert running.seen.get() != running.seen.get()
    running.stop()
    assert running.depth("mainapp_due") == 0


def test_an_unroutable_result_is_kept_and_the_handler_runs_once(running):
    @running.handlers.on_due("invoice.reminder")
    def _(event):
        running.seen.put(event)
        return "done"

    channel = running.host.channel
    channel.queue_unbind("scheduler_results", "schedule.commands", "result")
    running.start()
    run = {"attempt": 2, "attempts_left": 1, "max_attempts": 3, "deadline": "2026-12-01T09:00:00Z"}
    sent = running.emit(due() | {"run": run})
    running.seen.get(timeout=DEADLINE)
    channel.queue_bind("scheduler_results", "schedule.commands", "result")
    said = []

    def ended():
        said.append(json.loads(running.host.get("scheduler_results")[2]))
        return said[-1]["status"] == "succeeded"

    until(ended, "the result")
    assert said[-1].items() >= {"event_id": sent["event_id"], "attempt": 2, "output": "done"}.items()
    running.stop()
    assert running.seen.empty()
    assert running.depth("mainapp_due") == 0


def test_two_handlers_for_one_job_type_are_a_mistake(running):
    running.handlers.on_due("a")(print)
    with pytest.raises(ValueError, match="already"):
        running.handlers.on_due("a")(print)
