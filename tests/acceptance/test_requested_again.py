"""A job that is requested again with the same schedule emits nothing again: over AMQP and over HTTP."""

from datetime import timedelta
from uuid import uuid4

import pytest
from api_support import start_api
from support import iso, until, utc

SCHEDULES = {
    "one-shot": {"run_at": iso(utc(hours=-2))},
    "daily": {"run_at": iso(utc(days=-3)), "rrule": "FREQ=DAILY"},
    "every": {"run_at": iso(utc(days=-3)), "every": "P1D"},
}
SPELT_DIFFERENTLY = {
    "one-shot": {},
    "daily": {"rrule": "RRULE:INTERVAL=1;FREQ=DAILY", "timezone": "UTC"},
    "every": {"every": 86400},
}


@pytest.mark.parametrize("on_missed", ["latest", "all"])
@pytest.mark.parametrize("way", ["amqp", "api"])
def test_a_new_name_or_payload_emits_no_occurrence_again(host, sidecar, way, on_missed):
    sidecar.up()
    api = start_api(sidecar) if way == "api" else None
    emitted = {"latest": 1, "all": 4}[on_missed]
    jobs = {kind: host.request(**fields, on_missed=on_missed, run={}) for kind, fields in SCHEDULES.items()}
    events = host.due(1 + 2 * emitted)
    for event in events:
        host.publish("result", {"event_id": event["event_id"], "attempt": 1, "status": "succeeded"})
    until(lambda: not sidecar.sql("SELECT 1 FROM runs"), "all runs ended")
    until(lambda: sidecar.job(jobs["one-shot"])["status"] == "done", "the one-shot is settled")
    recurring = [jobs["daily"], jobs["every"]]
    until(lambda: all(sidecar.job(each)["occurrence"] == emitted for each in recurring), "all settled")
    before = {kind: sidecar.job(job) for kind, job in jobs.items()}

    for kind, job in jobs.items():
        request = {"id": job, "job_type": "test.job", "name": "new", "payload": {"n": 2}, "on_missed": on_missed}
        request |= SCHEDULES[kind] | SPELT_DIFFERENTLY[kind]
        if api is None:
            host.publish("request", request | {"run": {}})
        else:
            old = api.get(f"/jobs/{job}")
            put = api.ask("PUT", f"/jobs/{job}", request | {"run": {}})
            assert (put.status, put.json["next_run_at"]) == (200, old.json["next_run_at"]), put.body
            assert put.headers["ETag"] != old.headers["ETag"]
    marker = host.request(run_at=iso(utc()))
    assert [event["job_id"] for event in host.due(1)] == [marker]
    assert host.drain("mainapp_due") == []
    for kind, job in jobs.items():
        after = sidecar.job(job)
        assert (after["name"], after["payload"]) == ("new", {"n": 2})
        kept = ("status", "next_run_at", "occurrence", "starts_at", "dtstart")
        assert [after[name] for name in kept] == [before[kind][name] for name in kept]
    assert sidecar.sql("SELECT 1 FROM runs") == []


def test_a_rule_without_a_start_keeps_its_stored_start(host, sidecar):
    sidecar.up(producers=0)
    job = host.request(every=3600)
    before = sidecar.stored(job)
    assert before["start_source"] == "stored"
    host.request(id=job, every="PT1H", name="new")
    until(lambda: sidecar.job(job)["name"] == "new", "stored again")
    after = sidecar.job(job)
    assert (after["starts_at"], after["next_run_at"]) == (before["starts_at"], before["next_run_at"])


def test_a_request_restarts_a_cancelled_job(host, sidecar):
    sidecar.up()
    request = {"id": str(uuid4()), "run_at": iso(utc(hours=-1))}
    host.request(**request)
    [first] = host.due()
    sidecar.stored(request["id"], "done")
    host.publish("request", {"job_type": "t"} | request | {"run_at": iso(utc(days=1))})
    sidecar.stored(request["id"], "pending")
    host.publish("cancel", {"id": request["id"]})
    sidecar.stored(request["id"], "cancelled")
    host.request(**request)
    assert host.due()[0]["event_id"] == first["event_id"]


def test_a_request_keeps_a_paused_job_paused_with_its_trigger(host, sidecar):
    sidecar.up(producers=0)
    job = host.request(run_at=iso(utc(days=1)))
    host.publish("pause", {"id": job})
    sidecar.stored(job, "paused")
    host.request(id=job, run_at=iso(utc(days=2)), name="new")
    until(lambda: sidecar.job(job)["name"] == "new", "stored again")
    assert sidecar.job(job)["status"] == "paused"
    host.publish("trigger", {"id": job})
    until(lambda: sidecar.job(job)["triggers"], "the trigger is stored")
    sidecar.start("producer").ready()
    marker = host.request(run_at=iso(utc()))
    assert [event["job_id"] for event in host.due()] == [marker]
    assert host.drain("mainapp_due") == []
    host.publish("resume", {"id": job})
    assert host.due()[0]["job_id"] == job


def test_a_changed_rule_repeats_no_emitted_occurrence(host, sidecar):
    sidecar.up()
    start = utc(days=-3) + timedelta(hours=1)
    for on_missed, count in (("latest", 1), ("all", 3)):
        job = host.request(run_at=iso(start), every="P1D", on_missed=on_missed)
        assert {event["job_id"] for event in host.due(count)} == {job}
        until(lambda job=job, count=count: sidecar.job(job)["occurrence"] == count, "settled")
        host.request(id=job, run_at=iso(start), rrule="FREQ=DAILY", on_missed=on_missed, name="new")
        until(lambda job=job: sidecar.job(job)["name"] == "new", "stored again")
    marker = host.request(run_at=iso(utc()))
    assert [event["job_id"] for event in host.due(1)] == [marker]
    assert host.drain("mainapp_due") == []
