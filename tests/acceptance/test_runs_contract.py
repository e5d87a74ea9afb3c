"""Every line of the contract's chapter on runs that other tests leave out, as a host sees it."""

import json
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from support import iso, until, utc


@pytest.fixture
def up(sidecar):
    return sidecar.up()


@pytest.fixture
def ask(host):
    """Publish a command or a result and return the answer."""
    replies = host.channel.queue_declare("", exclusive=True).method.queue

    def _ask(key, **body):
        host.publish(key, body, reply_to=replies)
        return json.loads(host.get(replies)[2])

    return _ask


def request(host, run, **fields):
    return host.request(**{"run_at": iso(utc()), "run": run} | fields)


def said(event, status, **fields):
    return {"event_id": event["event_id"], "attempt": event["run"]["attempt"], "status": status} | fields


def moment(text):
    return datetime.fromisoformat(text)


def seconds(event):
    """The expiration of an attempt in its queue, from its event."""
    return (moment(event["run"]["deadline"]) - moment(event["emitted_at"])).total_seconds()


@pytest.mark.usefixtures("up")
def test_the_event_of_a_tracked_job_and_of_its_later_attempts(host, ask):
    job = request(host, {}, payload={"price": 1.10, "of": [None]}, every=3600)
    _, properties, body = host.get("mainapp_due")
    first = json.loads(body)
    assert first["run"] == {
        "attempt": 1, "attempts_left": 2, "max_attempts": 3, "deadline": first["run"]["deadline"],
    }
    assert (seconds(first), properties.expiration) == (3600, "3600000")
    assert (properties.message_id, properties.type) == (first["event_id"], "ScheduleDue")
    # The job was replaced and paused in between: a later attempt is like the first one.
    ask("request", id=job, job_type="other", payload={}, run_at=iso(utc(days=1)), run={"max_attempts": 9})
    ask("pause", id=job)
    assert ask("result", **said(first, "failed", error="no", retry_in=0.01)) == {
        "event_id": first["event_id"], "status": "recorded",
    }
    _, properties, body = host.get("mainapp_due")
    second = json.loads(body)
    changing = ("emitted_at", "run")
    assert {**second, **dict.fromkeys(changing)} == {**first, **dict.fromkeys(changing)}
    assert second["run"] == {
        "attempt": 2, "attempts_left": 1, "max_attempts": 3, "deadline": second["run"]["deadline"],
    }
    assert moment(second["emitted_at"]) > moment(first["emitted_at"])
    assert (properties.message_id, properties.expiration) == (first["event_id"], "3600000")
    # Fractions of seconds, and a retried job that exceeds its maximum lateness.
    request(host, {"start_timeout": 3600.5, "backoff": [20.5]}, max_lateness=20)
    _, properties, body = host.get("mainapp_due")
    third = json.loads(body)
    assert (seconds(third), properties.expiration) == (3600.5, "3600500")
    ask("result", **said(third, "failed"))
    [fourth] = host.due()
    assert (fourth["event_id"], fourth["run"]["attempt"]) == (third["event_id"], 2)
    assert moment(fourth["emitted_at"]) - moment(third["emitted_at"]) >= timedelta(seconds=20.5)


def test_unstarted_overdue_and_lost_attempts_are_retried(up, host, ask):
    job = request(host, {"start_timeout": 1, "backoff": [0], "max_attempts": 100})
    until(lambda: up.sql("SELECT 1 FROM runs WHERE attempt > 2"), "the attempts that were never started are lost")
    ask("cancel", id=job)
    [row] = until(lambda: up.sql("SELECT * FROM run_history"), "its end")
    assert {attempt["outcome"] for attempt in row["attempts"]} == {"timed_out"}
    # The broker drops attempts that can no longer start.
    until(lambda: host.channel.queue_declare("mainapp_due", passive=True).method.message_count == 0, "no event")
    request(host, {"timeout": 1, "backoff": [0]})
    [event] = host.due()
    ask("result", **said(event, "running", worker="slow"))
    [again] = host.due()
    assert (again["event_id"], again["run"]["attempt"]) == (event["event_id"], 2)
    [row] = up.sql("SELECT attempts FROM runs")
    assert [(attempt["outcome"], attempt["worker"]) for attempt in row["attempts"]] == [("timed_out", "slow")]
    ask("result", **said(again, "succeeded"))
    until(lambda: not up.sql("SELECT 1 FROM runs"), "its end")
    # The newest `running` decides about heartbeats, and its silence is noticed long before the time limit.
    request(host, {"backoff": [0]})
    [event] = host.due()
    ask("result", **said(event, "running", worker="silent", heartbeat=3600))
    ask("result", **said(event, "running", heartbeat=1, progress=0.5))
    [again] = host.due()
    assert (again["event_id"], again["run"]["attempt"]) == (event["event_id"], 2)
    [row] = up.sql("SELECT attempts FROM runs")
    assert [(attempt["outcome"], attempt["worker"]) for attempt in row["attempts"]] == [("lost", "silent")]


@pytest.mark.usefixtures("up")
def test_replies_to_results_and_retries(host, ask):
    finished = host.listen("schedule.events", "finished")
    request(host, {"backoff": [0], "max_attempts": 2})
    [first] = host.due()

    def status(key, **body):
        return ask(key, **body)["status"]

    assert status("result", **said(first, "running", heartbeat=60)) == "recorded"
    assert status("result", **said(first, "running", heartbeat=60)) == "recorded"  # repeatedly
    assert status("result", **said(first, "failed", error="no")) == "recorded"
    [second] = host.due()
    for late in ("running", "failed", "snoozed"):
        assert status("result", **said(first, late, retry_in=1)) == "superseded"
    for never in ("running", "failed", "snoozed"):
        assert status("result", **said(second, never, retry_in=1) | {"attempt": 3}) == "unchanged"
    assert status("retry", event_id=first["event_id"]) == "unchanged"  # it is open
    assert status("result", **said(second, "failed", error="no")) == "recorded"
    assert status("result", **said(second, "failed", error="no")) == "unchanged"
    assert json.loads(host.get(finished)[2])["status"] == "dead"
    assert status("result", **said(second, "failed", error="no")) == "unchanged"
    now = utc()
    accepted = ask("retry", event_id=first["event_id"], issued_at=iso(now))
    assert (accepted["id"], accepted["status"]) == (first["event_id"], "scheduled")
    [third] = host.due()
    assert third["run"]["attempt"] == 3
    assert third["run"]["attempts_left"] == 1
    assert status("result", **said(third, "failed", retry=False)) == "recorded"
    assert json.loads(host.get(finished)[2])["status"] == "dead"
    for issued in (now, now - timedelta(seconds=1)):
        assert status("retry", event_id=first["event_id"], issued_at=iso(issued)) == "unchanged"
    # A late success of an earlier attempt, after the run was dead: announced again.
    assert status("result", **said(first, "succeeded", output=[1])) == "recorded"
    told = json.loads(host.get(finished)[2])
    assert (told["status"], told["attempts"], told["output"]) == ("succeeded", 3, [1])
    assert status("result", **said(third, "failed")) == "unchanged"
    assert status("result", **said(first, "failed")) == "superseded"
    assert status("retry", event_id=first["event_id"]) == "unchanged"


@pytest.mark.usefixtures("up")
def test_a_dead_run_is_announced_and_dead_lettered(host, ask):
    finished = host.listen("schedule.events", "finished")
    job = request(host, {"max_attempts": 1}, payload={"n": 1}, priority="high")
    [event] = host.due()
    times = {"started_at": "2026-12-01T08:00:00Z", "finished_at": "2026-12-01T08:00:02.5Z"}
    ask("result", **said(event, "failed", error="no", output={"x": 1}, worker="w", **times))
    _, properties, body = host.get(finished)
    assert (properties.type, properties.app_id) == ("ScheduleFinished", "scheduler")
    assert json.loads(body) == {
        "event_id": event["event_id"], "job_id": job, "job_type": "test.job", "due_at": event["due_at"],
        "status": "dead", "attempts": 1, "started_at": "2026-12-01T08:00:00.000000Z",
        "finished_at": "2026-12-01T08:00:02.500000Z", "error": "no", "output": {"x": 1},
    }
    method, properties, body = host.get("scheduler_dead")
    assert (method.exchange, method.routing_key, properties.expiration) == ("schedule.dead", "due", None)
    assert properties.priority == 9
    assert json.loads(body) == event
    assert properties.headers["x-attempts"] == 1
    assert properties.headers["x-dead-reason"] == "failed at attempt 1: no"
    assert abs(moment(properties.headers["x-dead-at"]) - utc()) < timedelta(hours=1)
    # A cancelled run is announced too, and has no dead letter; a retry resets its attempts.
    job = request(host, {}, every=3600)
    [event] = host.due()
    ask("result", **said(event, "running", worker="w"))
    assert ask("cancel", id=job)["status"] == "cancelled"
    told = json.loads(host.get(finished)[2])
    assert (told["status"], told["attempts"], told["error"]) == ("cancelled", 1, None)
    assert ask("result", **said(event, "failed"))["status"] == "recorded"
    assert ask("retry", event_id=event["event_id"])["status"] == "scheduled"
    [again] = host.due()
    assert (again["event_id"], again["run"]["attempt"]) == (event["event_id"], 2)
    ask("result", **said(again, "succeeded", output="x" * 70_000))
    told = json.loads(host.get(finished)[2])
    assert (told["status"], told["attempts"], told["output_cut"]) == ("succeeded", 2, True)
    assert (told["output"][:2], len(told["output"])) == ('"x', 64 * 1024)
    assert host.drain("scheduler_dead") == []


def test_results_for_untracked_or_unknown_events_are_ignored(up, host, ask):
    host.request(run_at=iso(utc()))
    [event] = host.due()
    assert "run" not in event
    unknown = [event["event_id"], str(uuid4())]
    for event_id in unknown:
        for each in ({"status": "failed"}, {"status": "running", "heartbeat": 1}, {"status": "succeeded"}):
            assert ask("result", event_id=event_id, attempt=1, **each) == {
                "event_id": event_id, "status": "recorded",
            }
    assert ask("result", event_id=unknown[0], attempt=1, status="failed")["status"] == "unchanged"
    # An hour later they are dropped and counted.
    up.sql("UPDATE runs SET noted_at = noted_at - interval '1 hour', wake_at = wake_at - interval '1 hour'")
    until(lambda: not up.sql("SELECT 1 FROM runs"), "the results of unknown events dropped")
    producer = next(process for process in up.processes if process.role == "producer")
    until(lambda: producer.metric("scheduler_results_unknown_total") == 6, "their count")
    assert up.sql("SELECT 1 FROM run_history") == []
