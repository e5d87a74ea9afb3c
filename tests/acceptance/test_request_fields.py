"""The fields manual, paused, description, run_at now and run.max_running, as a host sees them over AMQP."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from support import iso, until, utc


@pytest.fixture
def ask(host):
    """Publish a command and return the reply."""
    replies = host.channel.queue_declare("", exclusive=True).method.queue

    def publish(key, **body):
        host.publish(key, body, reply_to=replies)
        return json.loads(host.get(replies)[2])

    return publish


def requested(ask, **fields):
    return ask("request", **{"job_type": "test.job"} | fields)


def no_other_event(host):
    """Return whether nothing is due but a marker that is requested now."""
    marker = host.request(run_at=iso(utc()))
    return [event["job_id"] for event in host.due()] == [marker] and host.drain("mainapp_due") == []


def test_a_manual_job_runs_when_it_is_triggered_and_stays_pending(host, sidecar, ask):
    sidecar.up()
    job = str(uuid4())
    description = "Sent\nto customers. " + "x" * 1980
    reply = requested(ask, id=job, manual=True, description=description)
    assert reply == {"id": job, "status": "scheduled", "next_run_at": None}
    assert sidecar.job(job)["description"] == description
    for _ in range(2):
        ask("trigger", id=job)
        [event] = host.due()
        assert (event["job_id"], event["next_run_at"], "description" in event) == (job, None, False)
        until(lambda: sidecar.job(job)["triggers"] == [], "the trigger is settled")
        row = sidecar.job(job)
        assert (row["status"], row["next_run_at"], row["finished_at"]) == ("pending", None, None)
    requested(ask, id=job, manual=True, name="new")
    assert (sidecar.job(job)["status"], sidecar.job(job)["occurrence"]) == ("pending", 2)
    scheduled = requested(ask, id=job, every=3600, run_at=iso(utc(days=1)))
    assert scheduled["next_run_at"] is not None
    assert requested(ask, id=job, manual=True)["next_run_at"] is None
    assert sidecar.job(job)["status"] == "pending"
    ask("cancel", id=job)
    assert sidecar.job(job)["status"] == "cancelled"


@pytest.mark.parametrize("rule", [{}, {"every": 86400}, {"rrule": "FREQ=DAILY"}])
def test_run_at_now_is_kept_by_a_repeated_request(host, sidecar, ask, rule):
    sidecar.up()
    job = str(uuid4())
    requested(ask, id=job, run_at="now", **rule)
    [event] = host.due()
    until(lambda: sidecar.job(job)["occurrence"] == 1, "settled")
    before = sidecar.job(job)
    assert event["due_at"] == iso(before["starts_at"]).replace("+00:00", "Z")
    requested(ask, id=job, run_at="now", **rule, payload={"n": 2})
    after = sidecar.job(job)
    names = ("status", "next_run_at", "occurrence", "starts_at")
    assert [after[name] for name in names] == [before[name] for name in names]
    assert after["payload"] == {"n": 2}
    assert no_other_event(host)


def test_paused_in_a_request_is_ordered_like_a_pause_or_a_resume(host, sidecar, ask):
    sidecar.up()
    job, start = str(uuid4()), utc(hours=-1)
    one_shot = {"id": job, "run_at": iso(start)}

    def at(minutes):
        return iso(start + timedelta(minutes=minutes))

    def status():
        return sidecar.job(job)["status"]

    requested(ask, **one_shot, issued_at=at(10), paused=True)
    ask("resume", id=job, issued_at=at(9))
    assert status() == "paused"
    requested(ask, **one_shot, issued_at=at(11), name="absent leaves the state")
    assert status() == "paused"
    requested(ask, id=job, run_at=iso(utc(days=1)), issued_at=at(13), paused=False)
    assert status() == "pending"
    ask("pause", id=job, issued_at=at(12))
    assert requested(ask, **one_shot, issued_at=at(12), paused=True)["status"] == "superseded"
    assert status() == "pending"
    # A request that is older than the stored one pauses nevertheless, as a pause of its time would.
    requested(ask, id=job, run_at=iso(utc(days=1)), issued_at=at(20))
    assert requested(ask, **one_shot, issued_at=at(15), paused=True)["status"] == "superseded"
    assert status() == "paused"
    ask("trigger", id=job)
    assert no_other_event(host)
    ask("resume", id=job)
    assert host.due()[0]["job_id"] == job


def test_max_running_is_the_number_of_open_runs_from_which_overlap_applies(host, sidecar, ask):
    sidecar.up()
    skipping, waiting = str(uuid4()), str(uuid4())
    missed = host.listen("schedule.events", "missed")

    def finish(event):
        ask("result", event_id=event["event_id"], attempt=1, status="succeeded")

    requested(ask, id=skipping, manual=True, run={"overlap": "skip", "max_running": 2})
    for _ in range(2):
        ask("trigger", id=skipping)
        assert host.due()[0]["job_id"] == skipping
    ask("trigger", id=skipping)
    skipped = json.loads(host.get(missed)[2])
    assert (skipped["job_id"], skipped["reason"]) == (skipping, "overlap")

    requested(ask, id=waiting, manual=True, run={"overlap": "wait", "max_running": 2})
    for _ in range(4):
        ask("trigger", id=waiting)
    first, second = host.due(2)
    until(lambda: sidecar.job(waiting)["held_by"], "held while two runs are open")
    assert host.drain("mainapp_due") == []
    finish(second)
    [third] = host.due()
    until(lambda: sidecar.job(waiting)["held_by"], "held again")
    assert host.drain("mainapp_due") == []
    finish(first)
    [fourth] = host.due()
    assert {event["job_id"] for event in (first, second, third, fourth)} == {waiting}
    assert len({event["event_id"] for event in (first, second, third, fourth)}) == 4
