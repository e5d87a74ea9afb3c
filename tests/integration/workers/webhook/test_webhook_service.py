"""Workers that stop, die or are busy: the worker that makes a call, and its report."""

import json
import threading

import pytest
from endpoints import answer, endpoint, event, results, silent
from support import DEADLINE, Process, until


@pytest.fixture
def server():
    with endpoint() as made:
        yield made


@pytest.fixture
def start(amqp_url):
    started = []

    def worker(**env):
        process = Process("worker", {"AMQP_URL": amqp_url, "SCHEDULER_WEBHOOK_ALLOW": "127.0.0.0/8"} | env).ready()
        started.append(process)
        return process

    yield worker
    for each in started:
        each.kill()


def publish(host, *events):
    for each in events:
        host.publish("webhook", each, exchange="schedule.work")


def waiting(host):
    return host.channel.queue_declare("scheduler_webhooks", passive=True).method.message_count


def test_a_long_call_is_reported_as_running(start, server, host):
    done = threading.Event()

    def act(*call):
        done.wait(DEADLINE)
        answer(200)(*call)

    start()
    publish(host, event(server.on("/slow", act)))
    said = {"status": None}
    while said["status"] is None:
        method, _, body = host.get("scheduler_results")
        said = json.loads(body) if method.routing_key == "result" else said
    assert (said["status"], said["attempt"], "started_at" in said) == ("running", 1, True)
    done.set()
    [final] = results(host, 1).values()
    assert (final["status"], final["started_at"]) == ("succeeded", said["started_at"])


def test_calls_of_a_stopped_worker_are_repeated_without_using_an_attempt(start, server, host):
    server.on("/hangs", silent)
    first = start()
    due = event(server.url("/hangs"), timeout=900)
    publish(host, due)
    server.one("/hangs")
    assert first.stop() == 0
    until(lambda: waiting(host) == 1, "the call back in the queue")
    server.on("/hangs", answer(200))
    start()
    [final] = results(host, 1).values()
    assert (final["event_id"], final["attempt"], final["status"]) == (due["event_id"], 1, "succeeded")


def test_a_killed_workers_calls_are_made_by_another(start, server, host):
    server.on("/hangs", silent)
    first = start()
    publish(host, event(server.url("/hangs"), timeout=900))
    server.one("/hangs")
    first.kill()
    server.on("/hangs", answer(200))
    start()
    [final] = results(host, 1).values()
    assert (final["attempt"], final["status"]) == (1, "succeeded")


def test_a_hanging_endpoint_delays_no_other(start, server, host):
    with endpoint() as dead:
        dead.on("/hangs", silent)
        worker = start(SCHEDULER_WEBHOOK_HOST_CONCURRENCY="2", SCHEDULER_WORKER_CONCURRENCY="10")
        hanging = [event(dead.url("/hangs"), timeout=900) for _ in range(100)]
        publish(host, *hanging)
        asked = [event(server.url("/fast")) for _ in range(20)]
        fast = {each["event_id"] for each in asked}
        found = {}
        for each in asked:  # one at a time: they are not to be in each other's way
            publish(host, each)
            while each["event_id"] not in found:
                found |= results(host, 1)
        assert {found[each]["status"] for each in fast} == {"succeeded"}
        put_off = [each for event_id, each in found.items() if event_id not in fast]
        while len(put_off) < 98:
            put_off += results(host, 1).values()
        # Two are in flight; all others are snoozed, which does not count as an attempt.
        assert {each["status"] for each in put_off} == {"snoozed"}
        assert min(each["retry_in"] for each in put_off) >= 0.9
        until(lambda: len(dead.calls("/hangs")) >= 2, "both calls")
        until(lambda: 'class="put_off"} 98.0' in worker.http("/metrics")[1], "the others counted")
        assert len(dead.calls("/hangs")) == 2


def test_non_events_are_dropped(start, server, host):
    worker = start()
    for body in (b"", b"not json", b"[]", b"{}", b'{"event_id": "x"}', b'{"run": {"attempt": 1}}'):
        host.publish("webhook", body, exchange="schedule.work")
    wrong = event(server.url("/")) | {"target": {"command": {"name": "x"}}}
    publish(host, wrong, event(server.url("/fine")))
    found = results(host, 2)
    assert found[wrong["event_id"]]["retry"] is False
    assert "target.webhook" in found[wrong["event_id"]]["error"]
    assert worker.logged("message dropped: not an event for a webhook")
    until(lambda: waiting(host) == 0, "an empty queue")


@pytest.mark.parametrize(("env", "words"), [
    ({"SCHEDULER_WEBHOOK_ALLOW": "10.0.0.0/99"}, "SCHEDULER_WEBHOOK_ALLOW"),
    ({"SCHEDULER_WEBHOOK_SECRETS_FILE": "/no/such/file"}, "SCHEDULER_WEBHOOK_SECRETS_FILE"),
])
def test_a_bad_setting_ends_it_with_78(amqp_url, env, words):
    process = Process("worker", {"AMQP_URL": amqp_url} | env)
    assert process.ended() == 78
    assert words in "".join(process.raw)
