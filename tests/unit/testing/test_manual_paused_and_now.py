"""The fields manual, paused, run_at now and run.max_running: combinations, repetition and the client."""

from datetime import UTC, datetime, timedelta
from itertools import permutations
from uuid import uuid4

import pytest

from scheduler.client import commands
from scheduler.domain.jobs.job import JobStatus
from scheduler.testing import Sidecar

START = datetime(2026, 12, 1, tzinfo=UTC)


def send(sidecar, job, **fields):
    return sidecar.request(id=job, job_type="test", **fields)


@pytest.mark.parametrize(("fields", "problems"), [
    ({"manual": True, "run_at": "now"}, {"manual", "run_at"}),
    ({"manual": True, "every": 5, "timezone": "Mars/North"}, {"manual", "every", "timezone"}),
    ({"manual": False}, {"run_at"}),
    ({"manual": 1}, {"manual"}),
    ({"run_at": "Now"}, {"run_at"}),
    ({"run_at": "now", "paused": "yes"}, {"paused"}),
    ({"run_at": "now", "description": "x" * 2001}, {"description"}),
    ({"run_at": "now", "run": {"max_running": 1}}, {"run.max_running"}),
    ({"run_at": "now", "run": {"overlap": "allow", "max_running": 2}}, {"run.max_running"}),
    ({"run_at": "now", "run": {"overlap": "skip", "max_running": 0}}, {"run.max_running"}),
    ({"run_at": "now", "run": {"overlap": "wait", "max_running": 101}}, {"run.max_running"}),
    ({"run_at": "now", "rrule": "DTSTART:20260101T000000Z\nRRULE:FREQ=DAILY"}, {"run_at"}),
])
def test_impossible_values_are_rejected_by_field(fields, problems):
    reply = Sidecar().request(id=uuid4(), job_type="test", **fields)
    assert {error.field for error in reply.errors} == problems


def test_commands_with_paused_have_the_same_result_in_every_order():
    steps = [
        ("request", {"paused": True}), ("request", {}), ("resume", {}), ("request", {"paused": False}),
        ("pause", {}),
    ]
    job, results = uuid4(), set()
    for order in permutations(range(len(steps))):
        sidecar = Sidecar(START)
        for number in order:
            kind, fields = steps[number]
            fields = fields | {"id": job, "issued_at": START + timedelta(minutes=number - 10)}
            if kind == "request":
                fields |= {"job_type": "test", "run_at": START + timedelta(days=1), "name": str(number)}
            sidecar.publish(kind, fields)
        stored = sidecar.job(job)
        results.add((stored.status, stored.definition.name, stored.paused_at, stored.resumed_at))
    assert [(status, name) for status, name, *_ in results] == [(JobStatus.PAUSED, "3")]


def test_a_request_with_the_same_issued_at_and_run_at_now_is_unchanged():
    sidecar, job = Sidecar(START), uuid4()
    for status in ("scheduled", "unchanged", "unchanged"):
        assert send(sidecar, job, run_at="now", issued_at=START).status == status
        sidecar.advance(minutes=1)
    assert len(sidecar.due()) == 1


def test_an_explicit_start_and_now_are_different_schedules():
    sidecar, job = Sidecar(START), uuid4()
    send(sidecar, job, run_at="now")
    sidecar.advance(minutes=1)
    send(sidecar, job, run_at=START)  # the instant that `now` was
    assert len(sidecar.due()) == 1
    send(sidecar, job, run_at=START + timedelta(seconds=1))
    send(sidecar, job, run_at="now")
    due = [event.due_at - START for event in sidecar.due()]
    assert due == [timedelta(seconds=1), timedelta(minutes=1)]


def test_a_recurring_job_with_now_equals_one_without_a_start():
    sidecar, job = Sidecar(START), uuid4()
    send(sidecar, job, every=3600)
    sidecar.advance(minutes=90)
    send(sidecar, job, every=3600, run_at="now")
    send(sidecar, job, every=3600)
    assert [event.due_at for event in sidecar.due()] == [START, START + timedelta(hours=1)]
    assert sidecar.job(job).next_run_at == START + timedelta(hours=2)


def test_a_cancelled_manual_job_is_requested_anew():
    sidecar, job = Sidecar(START), uuid4()
    send(sidecar, job, manual=True)
    sidecar.trigger(job)
    sidecar.cancel(job)
    assert sidecar.trigger(job).status == "unchanged"
    send(sidecar, job, manual=True)
    assert sidecar.job(job).status is JobStatus.PENDING
    assert len(sidecar.due()) == 1


def test_a_waiting_trigger_is_emitted_when_a_newer_request_resumes_a_manual_job():
    sidecar, job = Sidecar(START), uuid4()
    send(sidecar, job, manual=True, paused=True)
    sidecar.trigger(job)
    send(sidecar, job, manual=True, payload={"n": 2}, paused=False)  # newer than the trigger
    [due] = sidecar.due()
    assert (sidecar.job(job).status, due.payload) == (JobStatus.PENDING, {"n": 2})


def test_the_client_takes_the_fields_as_keywords():
    run = {"overlap": "wait", "max_running": 3}
    fields = {"manual": True, "paused": True, "description": "On demand", "run": run}
    assert commands.request(uuid4(), "test", None, fields).fields.items() >= fields.items()
    assert commands.request(uuid4(), "test", None, {"run_at": "now"}).fields["run_at"] == "now"
    with pytest.raises(commands.CommandRejected, match="manual"):
        commands.request(uuid4(), "test", None, {"manual": True, "every": 5})
