"""Every end of a run is announced, and reports after the end get a reply."""

import json
from uuid import uuid4

from support import iso, until, utc


def tracked(host, **run):
    return host.request(run_at=iso(utc()), run={"delay": 0, "max_attempts": 1} | run)


def report(host, event, status, **fields):
    attempt = {"event_id": event["event_id"], "attempt": event["run"]["attempt"]}
    host.publish("result", attempt | {"status": status} | fields)


def asked(host, key, body):
    """Send a message and return the reply."""
    queue, correlation = host.channel.queue_declare("", exclusive=True).method.queue, str(uuid4())
    host.publish(key, body, reply_to=queue, correlation_id=correlation)
    return json.loads(host.get(queue)[2])


def status(up, event):
    rows = up.sql("SELECT status FROM runs WHERE event_id = %s", event["event_id"])
    return rows[0]["status"] if rows else None


def finished(up, event):
    def there():
        return up.sql("SELECT * FROM run_history WHERE event_id = %s", event["event_id"])

    return until(there, "the run in the history")[0]


def dead_unannounced(up, host):
    """Make a run dead while no producer can announce it."""
    consumer, producer = up.processes
    tracked(host)
    [event] = host.due()
    assert producer.stop() == 0
    report(host, event, "failed", error="no", output={"n": 1})
    until(lambda: status(up, event) == "dead", "it is dead")
    assert consumer.popen.poll() is None
    return event


def test_a_retry_keeps_the_pending_dead_announcement(sidecar, host):
    up, listening = sidecar.up(), host.listen("schedule.events", "finished")
    event = dead_unannounced(up, host)
    assert asked(host, "retry", {"event_id": event["event_id"]})["status"] == "scheduled"
    up.start("producer").ready()
    [again] = host.due()
    assert (again["event_id"], again["run"]["attempt"]) == (event["event_id"], 2)
    told = json.loads(host.get(listening)[2])
    assert (told["status"], told["attempts"], told["error"], told["output"]) == ("dead", 1, "no", {"n": 1})
    _, properties, body = host.get("scheduler_dead")
    assert json.loads(body) == event
    assert properties.headers["x-attempts"] == 1
    assert properties.headers["x-dead-reason"] == "failed at attempt 1: no"
    report(host, again, "succeeded")
    told = json.loads(host.get(listening)[2])
    assert (told["status"], told["attempts"]) == ("succeeded", 2)
    assert finished(up, event)["status"] == "succeeded"
    assert host.drain(listening) == host.drain("scheduler_dead") == []


def test_a_late_success_keeps_the_pending_dead_announcement(sidecar, host):
    up, listening = sidecar.up(), host.listen("schedule.events", "finished")
    event = dead_unannounced(up, host)
    report(host, event, "succeeded", output="done")
    until(lambda: status(up, event) == "succeeded", "it has succeeded")
    up.start("producer").ready()
    told = [json.loads(host.get(listening)[2]) for _ in range(2)]
    assert [(each["status"], each["output"]) for each in told] == [("dead", {"n": 1}), ("succeeded", "done")]
    assert json.loads(host.get("scheduler_dead")[2])["event_id"] == event["event_id"]
    assert finished(up, event)["status"] == "succeeded"
    assert host.drain(listening) == host.drain("scheduler_dead") == []


def test_a_failure_after_a_cancel_is_recorded_and_the_run_stays_cancelled(sidecar, host):
    up, listening = sidecar.up(), host.listen("schedule.events", "finished")
    job = tracked(host, max_attempts=3)
    [event] = host.due()
    report(host, event, "running", worker="w")
    until(lambda: status(up, event) == "running", "it is running")
    host.publish("cancel", {"id": job})
    assert finished(up, event)["status"] == "cancelled"
    failed = {"event_id": event["event_id"], "attempt": 1, "status": "failed", "error": "no", "worker": "w"}
    assert [asked(host, "result", failed)["status"] for _ in range(2)] == ["recorded", "unchanged"]
    run = finished(up, event)
    assert (run["status"], run["error"]) == ("cancelled", "no")
    assert [(attempt["outcome"], attempt["error"]) for attempt in run["attempts"]] == [("failed", "no")]
    assert [json.loads(event)["status"] for event in host.drain(listening)] == ["cancelled"]
    report(host, event, "succeeded")
    assert json.loads(host.get(listening)[2])["status"] == "succeeded"
