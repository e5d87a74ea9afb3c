"""Due reminders from a host's view: real processes, plain AMQP, plain SQL."""

import json
import re
import signal
from datetime import datetime, timedelta
from uuid import uuid4

from support import Host, held_too_long, iso, until, utc

MICROSECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def at(text):
    return datetime.fromisoformat(text)


def test_each_request_yields_one_event_on_time_with_all_fields(host, sidecar):
    sidecar.up()
    run_at = utc(seconds=1)
    wanted = {}
    for number in range(10):
        job_id = str(uuid4())
        wanted[job_id] = {"number": number, "price": 1.10, "nested": {"ключ": [None, True]}}
        host.publish(
            "request",
            {"id": job_id, "job_type": "invoice.reminder", "payload": wanted[job_id], "run_at": iso(run_at)},
            correlation_id=f"ç\u00a0\t\n-{number}",
            headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        )
    seen = {}
    for _ in range(10):
        _, properties, body = host.get("mainapp_due")
        event = json.loads(body)
        seen[event["job_id"]] = event["payload"]
        assert list(event) == ["event_id", "job_id", "job_type", "payload", "due_at", "emitted_at", "occurrence",
                               "missed", "next_run_at"]
        assert all(MICROSECONDS.fullmatch(event[name]) for name in ("due_at", "emitted_at"))
        assert at(event["due_at"]) == run_at
        assert at(event["emitted_at"]) >= run_at
        assert (event["occurrence"], event["missed"], event["next_run_at"]) == (1, 0, None)
        assert properties.message_id == event["event_id"]
        assert (properties.type, properties.app_id, properties.delivery_mode) == ("ScheduleDue", "scheduler", 2)
        assert properties.content_type == "application/json"
        assert properties.correlation_id == f"ç\u00a0\t\n-{event['payload']['number']}"
        assert properties.headers["traceparent"].startswith("00-0af7")
        assert properties.timestamp == int(at(event["emitted_at"]).timestamp())
    assert seen == wanted
    until(lambda: sidecar.sql("SELECT count(*) AS n FROM jobs WHERE status = 'done'")[0]["n"] == 10, "all done")


def test_a_payload_is_returned_byte_for_byte(host, sidecar):
    sidecar.up()
    payload = b'{"z": 1.10,  "a": 1e3, "big": 12345678901234567890.123, "esc": "\\u00e9\\/"}'
    host.publish("request", b'{"id": "%s", "job_type": "t", "run_at": "%s", "payload": %s}' % (
        str(uuid4()).encode(), iso(utc()).encode(), payload,
    ))
    assert b'"payload":' + payload + b"," in host.get("mainapp_due")[2]


def test_a_recurring_job_runs_until_its_count_is_exhausted(host, sidecar):
    sidecar.up()
    start = utc(seconds=1).replace(microsecond=250_000)
    # On a busy machine one may be due before the previous one is emitted; another test covers that.
    job = host.request(run_at=iso(start), rrule="FREQ=SECONDLY;COUNT=3", on_missed="all")
    events = host.due(3)
    assert [at(event["due_at"]) for event in events] == [start + timedelta(seconds=n) for n in range(3)]
    assert [event["occurrence"] for event in events] == [1, 2, 3]
    assert [event["next_run_at"] and at(event["next_run_at"]) for event in events] == [
        start + timedelta(seconds=1), start + timedelta(seconds=2), None,
    ]
    assert len({event["event_id"] for event in events}) == 3
    assert sidecar.stored(job, "done")["occurrence"] == 3


def test_every_keeps_its_spacing(host, sidecar):
    sidecar.up()
    start = utc(seconds=1)
    host.request(run_at=iso(start), every="PT1S", on_missed="all")
    assert [at(event["due_at"]) for event in host.due(3)] == [start + timedelta(seconds=n) for n in range(3)]


def test_a_cancelled_job_emits_nothing(host, sidecar):
    sidecar.up(producers=0)
    cancelled = host.request(run_at=iso(utc()))
    kept = host.request(run_at=iso(utc()))
    host.publish("cancel", {"id": cancelled})
    sidecar.stored(cancelled, "cancelled")
    sidecar.start("producer").ready()  # only now, so that the cancel is in time on any machine
    assert [event["job_id"] for event in host.due(1)] == [kept]
    assert host.drain("mainapp_due") == []


def test_a_cancel_that_overtakes_its_request_still_cancels(host, sidecar):
    sidecar.up()
    job, other = str(uuid4()), str(uuid4())
    asked = utc()
    host.publish("cancel", {"id": job, "issued_at": iso(asked + timedelta(seconds=1))})
    for each in (job, other):
        host.publish("request", {"id": each, "job_type": "t", "run_at": iso(utc()), "issued_at": iso(asked)})
    assert host.due(1)[0]["job_id"] == other
    assert sidecar.stored(job)["status"] == "cancelled"
    assert host.drain("mainapp_due") == []


def test_pause_resume_and_trigger(host, sidecar):
    sidecar.up(producers=0)
    job = host.request(run_at=iso(utc()))
    host.publish("pause", {"id": job})
    sidecar.stored(job, "paused")
    sidecar.start("producer").ready()
    marker = host.request(run_at=iso(utc()))
    assert host.due(1)[0]["job_id"] == marker
    host.publish("resume", {"id": job})
    assert host.due(1)[0]["job_id"] == job
    far = host.request(run_at="2099-01-01T00:00:00Z")
    host.publish("trigger", {"id": far})
    event = host.due(1)[0]
    assert (event["job_id"], event["occurrence"]) == (far, 1)
    assert event["next_run_at"] == "2099-01-01T00:00:00.000000Z"
    until(lambda: sidecar.job(far)["occurrence"] == 1, "the trigger is settled")
    assert sidecar.job(far)["status"] == "pending"
    first, second = iso(utc(hours=1)), iso(utc(hours=2))
    for issued_at in (first, second, second):
        host.publish("trigger", {"id": far, "issued_at": issued_at})
    assert len({event["event_id"] for event in host.due(2)}) == 2
    until(lambda: sidecar.job(far)["occurrence"] == 3, "both triggers are settled")
    assert host.drain("mainapp_due") == []


def test_missed_runs_by_policy(host, sidecar):
    start = utc(hours=-2.5)
    missed = host.listen("schedule.events", "missed")
    sidecar.up()
    policies = {}
    for policy in ("latest", "all", "skip"):
        policies[host.request(run_at=iso(start), every="PT1H", on_missed=policy)] = policy
    events = [(policies[event["job_id"]], event) for event in host.due(4)]
    latest = [event for policy, event in events if policy == "latest"]
    assert [(at(event["due_at"]), event["missed"]) for event in latest] == [(start + timedelta(hours=2), 2)]
    everything = [event for policy, event in events if policy == "all"]
    assert [at(event["due_at"]) for event in everything] == [start + timedelta(hours=n) for n in range(3)]
    assert "skip" not in dict(events)
    reports = {policies[(body := json.loads(host.get(missed)[2]))["job_id"]]: body for _ in range(2)}
    assert (reports["skip"]["missed_count"], reports["skip"]["reason"]) == (3, "skip")
    assert (reports["latest"]["missed_count"], reports["latest"]["reason"]) == (2, "latest")
    assert [at(each) for each in reports["latest"]["missed"]] == [start, start + timedelta(hours=1)]
    for job in policies:
        until(lambda job=job: sidecar.job(job)["next_run_at"] == start + timedelta(hours=3), "the next hour")


def test_max_lateness_turns_a_late_one_shot_into_a_missed_one(host, sidecar):
    missed = host.listen("schedule.events", "missed")
    sidecar.up()
    job = host.request(run_at=iso(utc(minutes=-5)), max_lateness=60)
    late = host.request(run_at=iso(utc(minutes=-5)))
    body = json.loads(host.get(missed)[2])
    assert (body["job_id"], body["reason"], body["missed_count"]) == (job, "max_lateness", 1)
    assert host.due(1)[0]["job_id"] == late
    sidecar.stored(job, "done")
    assert host.drain("mainapp_due") == []


def test_two_producers_emit_each_event_once(host, sidecar):
    sidecar.up(producers=2)
    due = iso(utc(seconds=2))
    jobs = {host.request(run_at=due) for _ in range(300)}
    events = host.due(300)
    if held_too_long(sidecar.processes):
        while {event["job_id"] for event in events} < jobs:
            events += host.due()
        return
    assert {event["job_id"] for event in events} == jobs
    assert host.drain("mainapp_due") == []

    def counted():
        return sum(p.metric("jobs_due_total") for p in sidecar.processes if p.role == "producer")

    until(lambda: counted() >= 300, "each counted, which it is once it is settled")
    assert counted() == 300


def test_an_unroutable_event_stays_due_until_a_queue_is_bound(host, sidecar):
    producer = sidecar.up().processes[-1]
    host.channel.queue_unbind("mainapp_due", "schedule.events", "due")  # they bind it when they connect
    stuck = host.request(run_at=iso(utc()))
    sidecar.stored(stuck)
    until(lambda: sidecar.job(stuck)["retries"] >= 2, "two tries")
    assert sidecar.job(stuck)["status"] == "pending"
    until(lambda: producer.metric("scheduler_publish_failures_total") >= 2, "both counted")
    host.channel.queue_bind("mainapp_due", "schedule.events", "due")
    assert host.due(1)[0]["job_id"] == stuck
    assert sidecar.stored(stuck, "done")["retries"] == 0


def test_restarts_lose_and_duplicate_nothing(host, sidecar):
    sidecar.up(producers=2)
    jobs, orderly = set(), True
    for step in range(6):
        jobs |= {host.request(run_at=iso(utc(seconds=1 + n / 50))) for n in range(50)}
        if step % 2 == 0:
            old = list(sidecar.processes)
            sidecar.processes.clear()
            for process in old:
                assert process.stop(signal.SIGTERM) == 0
                orderly = orderly and process.orderly
            sidecar.up(producers=2)
    came = host.due(len(jobs))
    if not orderly:  # it was frozen for seconds while it stopped: unsettled events are redelivered
        while {event["job_id"] for event in came} < jobs:
            came += host.due()
        return
    assert {event["job_id"] for event in came} == jobs
    assert host.drain("mainapp_due") == []


def test_a_job_inserted_by_hand_runs_too(host, sidecar):
    sidecar.up()
    sidecar.sql("INSERT INTO jobs (id, job_type, next_run_at) VALUES (gen_random_uuid(), 'by.hand', now())")
    sidecar.sql("INSERT INTO jobs (id, job_type, rrule, next_run_at) "
                "VALUES (gen_random_uuid(), 'broken', 'NONSENSE', now()), "
                "(gen_random_uuid(), 'daily', 'FREQ=DAILY', now())")
    events = {event["job_type"]: event for event in host.due(2)}
    assert set(events) == {"by.hand", "daily"}
    assert at(events["daily"]["next_run_at"]) - at(events["daily"]["due_at"]) == timedelta(days=1)
    until(lambda: sidecar.sql("SELECT retries FROM jobs WHERE job_type = 'broken'")[0]["retries"] >= 1, "a retry")


def test_a_host_on_a_new_connection_sees_the_events(host, sidecar, amqp_url):
    sidecar.up()
    host.request(run_at=iso(utc()))
    other = Host(amqp_url)
    assert other.due(1)
    other.close()
