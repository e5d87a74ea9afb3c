"""Handlers of tracked jobs: the Runner reports, and the real sidecar tries again, puts off or gives up."""

import json
import queue
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
    """Within how many seconds a runner promises its next sign of life: none is lost on a busy machine."""
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


def test_a_handler_that_fails_is_tried_again_by_the_sidecar_until_it_succeeds(up, host, handlers, ask, finished):
    @handlers.on_due("test.job")
    def handle(event):
        if event.run.attempts_left:
            raise RuntimeError("mail server away")
        return {"sent": event.payload["n"]}

    ask(AT_ONCE, n=7)
    told = finished()
    assert (told["status"], told["attempts"], told["output"]) == ("succeeded", 3, {"sent": 7})
    assert outcomes(up, told["event_id"]) == [("failed", "w1"), ("failed", "w1"), ("succeeded", "w1")]
    [kept] = up.sql("SELECT attempts FROM run_history")
    assert "in handle" in kept["attempts"][0]["error"]
    assert kept["attempts"][0]["error"].endswith("RuntimeError: mail server away\n")
    assert unused(host)


def test_a_value_that_is_not_json_is_told_by_its_repr(handlers, ask, finished):
    handlers.on_due("test.job")(lambda _: {1j})
    ask({})
    assert finished()["output"] == "{1j}"


def test_a_snoozed_event_comes_again_and_the_attempt_does_not_count(up, handlers, ask, finished):
    @handlers.on_due("test.job")
    def _(event):
        if event.run.attempt == 1:
            raise Snooze(0.1)

    ask({"max_attempts": 1})
    told = finished()
    assert (told["status"], told["attempts"]) == ("succeeded", 2)
    assert outcomes(up, told["event_id"]) == [("snoozed", "w1"), ("succeeded", "w1")]


def test_what_is_given_up_is_dead_at_once_and_can_be_retried(host, handlers, ask, finished):
    @handlers.on_due("test.job")
    def _(event):
        if event.run.attempt == 1:
            raise GiveUp("no such invoice")

    ask(AT_ONCE)
    told = finished()
    assert (told["status"], told["attempts"], told["error"]) == ("dead", 1, "no such invoice")
    assert host.get("scheduler_dead")[1].headers["x-dead-reason"] == "failed at attempt 1: no such invoice"
    assert ask.client.retry(told["event_id"], wait=DEADLINE).status == "scheduled"
    assert finished()["status"] == "succeeded"


def test_a_job_type_that_nobody_handles_is_tried_again_by_the_sidecar(host, handlers, ask, finished):
    handlers.on_due("other.job")(print)
    ask(AT_ONCE)
    told = finished()
    assert (told["status"], told["attempts"]) == ("dead", 3)
    assert "UnknownJobType" in told["error"]
    assert unused(host)


@pytest.mark.parametrize("heartbeat", [6])
def test_a_handler_that_takes_its_time_gives_signs_of_life(up, handlers, ask, finished):
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

    until(renewed, "further signs of life")
    finish.set()
    assert finished()["status"] == "succeeded"
