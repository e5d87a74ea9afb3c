"""The outcome of a reminder: attempts, timeouts, dead letters, replay and history, with real processes."""

import json
import signal
from uuid import uuid4

import pytest
from support import iso, unreachable, until, utc

TRACKED = {"delay": 0, "max_attempts": 3}


@pytest.fixture
def up(sidecar):
    return sidecar.up()


def tracked(host, run=TRACKED, **fields):
    return host.request(**{"run_at": iso(utc()), "run": run, "payload": {"n": 1}} | fields)


def report(host, event, status, **fields):
    attempt = {"event_id": event["event_id"], "attempt": event["run"]["attempt"]}
    host.publish("result", attempt | {"status": status} | fields)


def finished(up, event):
    def there():
        rows = up.sql("SELECT * FROM run_history WHERE event_id = %s", event["event_id"])
        return rows[0] if rows else None

    return until(there, "the run in the history")


def test_a_succeeded_run_is_announced_and_archived(up, host):
    listening = host.listen("schedule.events", "finished")
    job = tracked(host)
    _, properties, body = host.get("mainapp_due")
    event = json.loads(body)
    assert event["run"].items() >= {"attempt": 1, "attempts_left": 2, "max_attempts": 3}.items()
    assert properties.expiration == "3600000"
    report(host, event, "running", worker="w1", heartbeat=30, progress=0.5)
    report(host, event, "succeeded", output={"sent": True}, worker="w1")
    told = json.loads(host.get(listening)[2])
    assert told.items() >= {
        "event_id": event["event_id"], "job_id": job, "status": "succeeded", "attempts": 1, "error": None,
        "output": {"sent": True},
    }.items()
    row = finished(up, event)
    assert (row["status"], row["worker"], row["attempt"]) == ("succeeded", "w1", 1)
    assert [attempt["outcome"] for attempt in row["attempts"]] == ["succeeded"]


def test_a_failing_run_is_retried_until_dead_then_replayed(up, host):
    tracked(host, {"backoff": [0], "max_attempts": 2})
    [first] = host.due()
    report(host, first, "failed", error="no")
    [second] = host.due()
    assert second["event_id"] == first["event_id"]
    assert (second["run"]["attempt"], second["run"]["attempts_left"]) == (2, 0)
    report(host, second, "failed", error="no again")
    _, properties, body = host.get("scheduler_dead")
    assert json.loads(body)["event_id"] == first["event_id"]
    assert properties.headers["x-attempts"] == 2
    assert "no again" in properties.headers["x-dead-reason"]
    assert properties.expiration is None
    assert finished(up, first)["status"] == "dead"
    host.publish("retry", {"event_id": first["event_id"]})
    [third] = host.due()
    assert (third["run"]["attempt"], third["run"]["attempts_left"]) == (3, 1)
    report(host, third, "succeeded")
    assert until(lambda: finished(up, first)["status"] == "succeeded", "the replay to succeed")


def test_a_silent_worker_is_detected_and_another_finishes(up, host):
    tracked(host)
    [first] = host.due()
    report(host, first, "running", worker="dies", heartbeat=1)
    [second] = host.due()
    report(host, second, "succeeded", worker="lives")
    row = finished(up, first)
    ended = [(attempt["outcome"], attempt["worker"]) for attempt in row["attempts"]]
    assert ended == [("lost", "dies"), ("succeeded", "lives")]


def test_after_a_database_outage_heartbeats_are_read_before_expiry(up, host):
    consumer, producer = (process.popen for process in up.processes)
    tracked(host)
    [event] = host.due()
    report(host, event, "running", worker="w", heartbeat=3600)
    until(lambda: up.sql("SELECT 1 FROM runs WHERE status = 'running'"), "it is running")
    for each in (consumer, producer):
        each.send_signal(signal.SIGSTOP)
    up.sql("UPDATE runs SET alive_until = now() - interval '1 hour', wake_at = now() - interval '1 hour'")
    with unreachable(up.database_url):
        pass  # open sessions are terminated
    producer.send_signal(signal.SIGCONT)
    put_off = until(lambda: up.sql("SELECT status FROM runs WHERE wake_at > alive_until"), "a check of it")
    assert put_off == [{"status": "running"}]


def test_cancelling_a_job_cancels_its_open_runs(up, host):
    job = tracked(host, {"delay": 3600})
    [event] = host.due()
    report(host, event, "failed")
    until(lambda: up.sql("SELECT 1 FROM runs WHERE status = 'waiting'"), "it waits")
    host.publish("cancel", {"id": job})
    assert finished(up, event)["status"] == "cancelled"
    report(host, event, "succeeded")
    until(lambda: finished(up, event)["status"] == "succeeded", "a late success to count")


def test_an_early_result_is_kept(up, host):
    event_id = str(uuid4())
    replies = host.channel.queue_declare("", exclusive=True).method.queue
    host.publish("result", {"event_id": event_id, "attempt": 1, "status": "succeeded"}, reply_to=replies)
    assert json.loads(host.get(replies)[2]) == {"event_id": event_id, "status": "recorded"}
    [row] = up.sql("SELECT status, early FROM runs")
    assert (row["status"], len(row["early"])) == ("expected", 1)


def test_an_occurrence_is_skipped_while_a_run_of_its_job_is_open(up, host):
    missed = host.listen("schedule.events", "missed")
    job = tracked(host, {"overlap": "skip"}, every=3600)
    [first] = host.due()
    until(lambda: up.sql("SELECT 1 FROM runs"), "the run recorded")
    host.publish("trigger", {"id": job})
    body = json.loads(host.get(missed)[2])
    assert (body["job_id"], body["reason"], body["missed_count"]) == (job, "overlap", 1)
    report(host, first, "succeeded")
    finished(up, first)
    host.publish("trigger", {"id": job})
    [second] = host.due()
    assert second["event_id"] != first["event_id"]


def test_overlap_wait_holds_a_job_until_its_run_ends(up, host):
    job = tracked(host, {"overlap": "wait"}, every=3600)
    [first] = host.due()
    until(lambda: up.sql("SELECT 1 FROM runs"), "the run recorded")
    host.publish("trigger", {"id": job})
    until(lambda: up.job(job)["held_by"] == first["event_id"], "the job waits for its run")
    assert host.drain("mainapp_due") == []
    report(host, first, "succeeded")
    [second] = host.due()
    assert (second["job_id"], second["run"]["attempt"]) == (job, 1)
    assert up.job(job)["held_by"] is None


def test_duplicate_and_late_results_change_nothing(up, host):
    replies = host.channel.queue_declare("", exclusive=True).method.queue
    tracked(host, {"backoff": [0], "max_attempts": 5})
    [first] = host.due()
    report(host, first, "failed", error="no")
    [second] = host.due()
    body = {"event_id": first["event_id"], "attempt": 1, "status": "failed", "error": "no"}
    host.publish("result", body, reply_to=replies)
    assert json.loads(host.get(replies)[2])["status"] == "superseded"
    for status in ("recorded", "unchanged"):
        host.publish("result", body | {"attempt": 2, "status": "succeeded"}, reply_to=replies)
        assert json.loads(host.get(replies)[2]) == {"event_id": first["event_id"], "status": status}
    finished(up, second)
    host.publish("result", body | {"attempt": 2, "status": "succeeded"}, reply_to=replies)
    assert json.loads(host.get(replies)[2])["status"] == "unchanged"
    assert len(up.sql("SELECT 1 FROM run_history")) == 1


@pytest.mark.usefixtures("up")
def test_a_malformed_result_and_an_impossible_policy_are_rejected_with_their_reasons(host):
    host.publish("result", {"event_id": str(uuid4()), "attempt": 0, "status": "running"})
    assert host.get("scheduler_dead")[1].headers["x-rejected-reason"].startswith("attempt: ")
    replies = host.channel.queue_declare("", exclusive=True).method.queue
    body = {"id": str(uuid4()), "job_type": "a", "run_at": iso(utc(hours=1)), "run": {"max_attempts": 101}}
    host.publish("request", body, reply_to=replies)
    assert [error["field"] for error in json.loads(host.get(replies)[2])["errors"]] == ["run.max_attempts"]
    host.publish("retry", {"event_id": str(uuid4())}, reply_to=replies)
    assert [error["field"] for error in json.loads(host.get(replies)[2])["errors"]] == ["event_id"]


def test_long_errors_and_outputs_are_truncated(up, host):
    tracked(host)
    [event] = host.due()
    report(host, event, "succeeded", error="e" * 5000, output={"text": "x" * 70_000})
    row = finished(up, event)
    assert (len(row["error"]), row["output_cut"]) == (4000, True)
    assert row["output"].startswith('{"text": "xxx')


def test_history_all_records_every_occurrence(sidecar, host):
    sidecar.up(SCHEDULER_HISTORY="all")
    host.request(run_at=iso(utc()))
    [event] = host.due()
    row = finished(sidecar, event)
    assert (row["status"], row["job_id"]) == ("emitted", event["job_id"])
    assert row["finished_at"] >= row["emitted_at"] >= row["due_at"]
