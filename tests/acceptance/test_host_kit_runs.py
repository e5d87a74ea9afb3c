"""Handlers of tracked jobs: the Runner reports, and the real sidecar retries, snoozes or dead-letters."""

import asyncio
import json
import queue
import signal
import subprocess
import sys
import threading
from uuid import uuid4

import pytest
from support import DEADLINE, until, utc

from scheduler.client import GiveUp, Handlers, Runner, SchedulerClient, Snooze

AT_ONCE = {"backoff": [0], "max_attempts": 3}


@pytest.fixture
def up(sidecar):
    return sidecar.up()


@pytest.fixture
def heartbeat():
    """The promised heartbeat interval of a runner in seconds: none is lost on a busy machine."""
    return DEADLINE


@pytest.fixture
def handlers(amqp_url, up, heartbeat):  # noqa: ARG001 - there must be a sidecar
    """Handlers that a runner in a thread serves; each test registers its own before it asks for anything."""
    made = Handlers()
    runner = Runner(amqp_url, handlers=made, workers=2, name="w1", heartbeat=heartbeat)
    thread = threading.Thread(target=runner.run)
    thread.start()
    assert runner.ready.wait(DEADLINE)
    yield made
    runner.stop()
    thread.join(DEADLINE)
    assert not thread.is_alive()


@pytest.fixture
def ask(amqp_url):
    with SchedulerClient(amqp_url, timeout=DEADLINE) as client:
        def schedule(run, **payload):
            client.schedule(uuid4(), "test.job", payload, run_at=utc(), run=run)

        schedule.client = client
        yield schedule


@pytest.fixture
def finished(host):
    listening = host.listen("schedule.events", "finished")
    return lambda: json.loads(host.get(listening)[2])


def outcomes(up, event_id):
    def there():
        rows = up.sql("SELECT attempts FROM run_history WHERE event_id = %s", event_id)
        return rows[0]["attempts"] if rows else None

    return [(each["outcome"], each["worker"]) for each in until(there, "the run in the history")]


def unused(host):
    """Nothing is left behind, and the Runner's own queues were not needed."""
    names = ("mainapp_due", "mainapp_due_retry_1000ms", "mainapp_due_dead")
    return all(host.channel.queue_declare(name, passive=True).method.message_count == 0 for name in names)


def test_a_failed_handler_is_retried_until_it_succeeds(up, host, handlers, ask, finished):
    @handlers.on_due("test.job")
    def handle(event):
        if event.run.attempts_left:
            raise RuntimeError("mail server unreachable")
        return {"sent": event.payload["n"]}

    ask(AT_ONCE, n=7)
    end = finished()
    assert (end["status"], end["attempts"], end["output"]) == ("succeeded", 3, {"sent": 7})
    assert outcomes(up, end["event_id"]) == [("failed", "w1"), ("failed", "w1"), ("succeeded", "w1")]
    [kept] = up.sql("SELECT attempts FROM run_history")
    assert "in handle" in kept["attempts"][0]["error"]
    assert kept["attempts"][0]["error"].endswith("RuntimeError: mail server unreachable\n")
    assert unused(host)


def test_a_non_json_return_value_is_an_error(handlers, ask, finished):
    handlers.on_due("test.job")(lambda _: {1j})
    ask(AT_ONCE)
    end = finished()
    assert (end["status"], end["attempts"]) == ("dead", 1)
    assert "the handler returned a value of type set that is not JSON" in end["error"]


def test_a_snoozed_attempt_is_repeated_and_not_counted(up, handlers, ask, finished):
    @handlers.on_due("test.job")
    def _(event):
        if event.run.attempt == 1:
            raise Snooze(0.1)

    ask({"max_attempts": 1})
    end = finished()
    assert (end["status"], end["attempts"]) == ("succeeded", 2)
    assert outcomes(up, end["event_id"]) == [("snoozed", "w1"), ("succeeded", "w1")]


def test_give_up_makes_a_run_dead_until_a_retry(host, handlers, ask, finished):
    @handlers.on_due("test.job")
    def _(event):
        if event.run.attempt == 1:
            raise GiveUp("no such invoice")

    ask(AT_ONCE)
    end = finished()
    assert (end["status"], end["attempts"], end["error"]) == ("dead", 1, "no such invoice")
    assert host.get("scheduler_dead")[1].headers["x-dead-reason"] == "failed at attempt 1: no such invoice"
    assert ask.client.retry(end["event_id"], wait=DEADLINE).status == "scheduled"
    assert finished()["status"] == "succeeded"


def test_an_unhandled_job_type_is_retried(host, handlers, ask, finished):
    handlers.on_due("other.job")(print)
    ask(AT_ONCE)
    end = finished()
    assert (end["status"], end["attempts"]) == ("dead", 3)
    assert "UnknownJobType" in end["error"]
    assert unused(host)


@pytest.mark.parametrize("heartbeat", [6])
def test_a_long_handler_sends_heartbeats(up, handlers, ask, finished):
    finish = threading.Event()
    seen = queue.SimpleQueue()

    @handlers.on_due("test.job")
    def _(event):
        seen.put(event)
        assert finish.wait(DEADLINE)

    ask({})
    seen.get(timeout=DEADLINE)
    promised = set()

    def renewed():
        rows = up.sql("SELECT alive_until FROM runs WHERE status = 'running'")
        promised.update(row["alive_until"] for row in rows)
        return len(promised) > 2

    until(renewed, "more heartbeats")
    finish.set()
    assert finished()["status"] == "succeeded"


def test_an_async_handler_is_cancelled_when_its_run_has_timed_out(up, handlers, ask, finished):
    cancelled = threading.Event()

    @handlers.on_due("test.job")
    async def _(_event):
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    ask({"timeout": 1, "max_attempts": 1})
    end = finished()
    assert end["status"] == "dead"
    assert cancelled.wait(DEADLINE)
    assert outcomes(up, end["event_id"]) == [("timed_out", "w1")]


def test_a_handler_that_outlasts_its_timeout_and_succeeds_ends_the_run(up, handlers, ask, finished):
    calls, finish = queue.SimpleQueue(), threading.Event()

    @handlers.on_due("test.job")
    def _(event):
        calls.put(event.run.attempt)
        assert finish.wait(DEADLINE)
        return event.run.attempt

    ask({"timeout": 1, "backoff": [0], "start_timeout": 600})
    until(lambda: up.sql("SELECT 1 FROM runs WHERE attempt = 2 AND status = 'delivered'"), "the second attempt")
    finish.set()
    end = finished()
    assert (end["status"], end["output"]) == ("succeeded", 1)
    assert calls.get() == 1
    assert calls.empty()


RUNNER = """
import sys, time
from scheduler.client import Runner, on_due

@on_due("test.job")
def work(event):
    print("at work", flush=True)
    time.sleep(3600)

Runner(sys.argv[1], name="dies", heartbeat=3).run()
"""


def test_a_runner_that_dies_after_the_ack_is_detected(up, host, amqp_url, ask, finished):
    process = subprocess.Popen([sys.executable, "-c", RUNNER, amqp_url], stdout=subprocess.PIPE, text=True)
    try:
        ask({"backoff": [0], "timeout": 3600})
        assert process.stdout.readline() == "at work\n"
        promised = set()  # with the second heartbeat the event is acknowledged
        until(lambda: promised.update(row["alive_until"] for row in up.sql(
            "SELECT alive_until FROM runs WHERE status = 'running'")) or len(promised) > 1, "two heartbeats")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    made = Handlers()
    made.on_due("test.job")(lambda event: event.run.attempt)
    runner = Runner(amqp_url, handlers=made, name="w2", heartbeat=DEADLINE)
    thread = threading.Thread(target=runner.run)
    thread.start()
    end = finished()
    runner.stop()
    thread.join(DEADLINE)
    assert (end["status"], end["output"]) == ("succeeded", 2)
    assert outcomes(up, end["event_id"]) == [("lost", "dies"), ("succeeded", "w2")]
    assert unused(host)
