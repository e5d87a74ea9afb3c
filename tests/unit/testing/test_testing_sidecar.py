"""The sidecar for hosts' own tests, used as a host would use it."""

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from pydantic import BaseModel

from scheduler.client import CommandRejected, Due, Handlers, job_id
from scheduler.client.handlers import Due as DueModel
from scheduler.domain.messages import ScheduleDue, ScheduleRejected
from scheduler.testing import InProcessClient, Sidecar

START = datetime(2026, 3, 27, 12, tzinfo=UTC)


@pytest.fixture
def sidecar():
    return Sidecar(START)


def hours(events):
    return [event.due_at.strftime("%d %H:%M") for event in events]


def test_the_plugins_fixture_is_a_sidecar_whose_clock_starts_now(scheduler_sidecar):
    assert abs(datetime.now(UTC) - scheduler_sidecar.now) < timedelta(minutes=1)
    scheduler_sidecar.request(id=uuid4(), job_type="a", every=60)
    scheduler_sidecar.advance(minutes=5)
    assert len(scheduler_sidecar.due()) == 6  # the first at once


def test_nothing_is_emitted_before_the_clock_is_moved(sidecar):
    sidecar.request(id=uuid4(), job_type="a", run_at=START + timedelta(days=3))
    sidecar.advance(days=2.9)
    assert sidecar.due() == []
    sidecar.advance(days=0.1)
    [event] = sidecar.due()
    assert event.emitted_at == event.due_at == START + timedelta(days=3)
    assert sidecar.due() == []


def test_a_rule_follows_the_wall_clock_through_daylight_saving(sidecar):
    sidecar.request(id=uuid4(), job_type="a", cron="0 9 * * *", timezone="Europe/Berlin")
    sidecar.advance(days=3)
    assert hours(sidecar.due()) == ["28 08:00", "29 07:00", "30 07:00"]


def test_after_downtime_on_missed_decides(sidecar):
    for policy in ("latest", "all", "skip"):
        sidecar.request(id=job_id(policy), job_type=policy, cron="0 9 * * *", on_missed=policy)
    with sidecar.down():
        sidecar.advance(days=3)
        assert sidecar.due() == []
    events = sidecar.due()
    assert [(event.job_type, event.missed) for event in events if event.job_type != "all"] == [("latest", 2)]
    assert hours(event for event in events if event.job_type == "all") == ["28 09:00", "29 09:00", "30 09:00"]
    assert {each.job_type: (each.missed_count, each.reason) for each in sidecar.missed()} == {
        "latest": (2, "latest"), "skip": (3, "skip"),
    }


def test_commands_change_later_events(sidecar):
    job = uuid4()
    sidecar.request(id=job, job_type="a", every="PT1H", run_at=START + timedelta(hours=1))
    sidecar.pause(job)
    sidecar.advance(hours=3)
    sidecar.trigger(job)
    assert sidecar.due() == []  # not even the trigger: the job is paused
    assert sidecar.resume(job).status == "scheduled"
    assert [event.missed for event in sidecar.due()] == [0, 2]  # the trigger, then the missed occurrences
    assert sidecar.cancel(job).status == "cancelled"
    sidecar.advance(hours=3)
    assert sidecar.due() == []
    assert sidecar.job(job).status == "cancelled"
    assert sidecar.job(uuid4()) is None


def test_a_resume_by_a_clock_that_is_ahead_skips_nothing_that_is_on_time(sidecar):
    job, ahead = uuid4(), START + timedelta(minutes=1)
    sidecar.request(id=job, job_type="a", every="PT10S", run_at=START + timedelta(seconds=5), on_missed="skip",
                    issued_at=ahead)
    sidecar.pause(job, issued_at=ahead + timedelta(seconds=1))
    sidecar.advance(seconds=22)  # two pass
    sidecar.resume(job, issued_at=ahead + timedelta(seconds=2))
    sidecar.advance(seconds=60)
    assert hours(sidecar.due()) == ["27 12:00"] * 4 + ["27 12:01"] * 2


def test_what_passed_just_before_a_resume_is_skipped_though_its_clock_is_a_little_ahead(sidecar):
    job = uuid4()
    sidecar.request(id=job, job_type="a", every="PT10S", run_at=START + timedelta(seconds=5), on_missed="skip")
    sidecar.pause(job)
    sidecar.advance(seconds=7)  # one has passed, two seconds ago
    sidecar.resume(job, issued_at=START + timedelta(seconds=7.05))
    sidecar.advance(seconds=10)
    assert [event.due_at for event in sidecar.due()] == [START + timedelta(seconds=15)]


def test_a_rejected_command_names_the_field(sidecar):
    answer = sidecar.request(id=uuid4(), job_type="a", rule="FREQ=DAILY")
    assert [error.field for error in answer.errors] == ["rule"]
    assert sidecar.rejected() == [answer]
    sidecar.publish("request", b"{")
    assert sidecar.rejected()[0].errors[0].field == "body"


def test_the_payload_is_returned_byte_for_byte(sidecar):
    body = f'{{"id": "{uuid4()}", "job_type": "a", "run_at": "2026-03-27T12:00:00Z", "payload": {{"x": 1.10}}}}'
    sidecar.publish("request", body.encode(), correlation_id="c-1")
    [event] = sidecar.take("due")
    assert b'"payload":{"x": 1.10}' in event.body
    assert event.correlation_id == "c-1"


def test_the_clock_does_not_go_back(sidecar):
    with pytest.raises(ValueError, match="back"):
        sidecar.advance_to(START - timedelta(seconds=1))


def test_the_code_under_test_gets_a_client_and_its_handlers_get_the_events(sidecar):
    class Reminder(BaseModel):
        invoice: int

    handlers, reminded = Handlers(), []

    @handlers.on_due("invoice.reminder", Reminder)
    def _(event: Due[Reminder]):
        reminded.append(event.payload.invoice)

    client = InProcessClient(sidecar)
    job = job_id("invoice", 42)
    assert client.schedule(job, "invoice.reminder", Reminder(invoice=42), run_at=START) is None
    assert client.schedule(job, "invoice.reminder", Reminder(invoice=43),
                           run_at=START + timedelta(days=1), wait=True).status == "scheduled"
    sidecar.advance(days=1)
    assert sidecar.deliver(handlers) == 2
    assert reminded == [42, 43]
    with pytest.raises(CommandRejected):
        client.schedule(job, "", run_at=START)


def test_a_handlers_event_has_the_fields_of_the_contract():
    assert set(DueModel.model_fields) == set(ScheduleDue.model_fields)


def test_a_large_payload_is_rejected_as_the_sidecars_setting_says():
    small = Sidecar(START, max_payload_bytes=20)
    answer = small.publish("request", json.dumps({"id": str(uuid4()), "job_type": "a", "payload": {"x": "y" * 30},
                                                  "every": 60}).encode())
    assert [error.field for error in answer.errors] == ["payload"]


def test_the_priority_is_the_property_that_a_host_would_get(sidecar):
    for priority, run in (("high", None), ("low", {"max_attempts": 1}), (None, None)):
        fields = {name: value for name, value in (("priority", priority), ("run", run)) if value is not None}
        sidecar.request(id=uuid4(), job_type=str(priority), run_at=sidecar.now, **fields)
    events = sidecar.take("due")
    found = {json.loads(event.body)["job_type"]: event.priority for event in events}
    assert found == {"high": 9, "low": 1, "None": None}
    [tracked] = [json.loads(event.body) for event in events if event.priority == 1]
    sidecar.result(tracked["event_id"], 1, "failed")
    assert [each.priority for each in sidecar.take("dead")] == [1]


def test_a_worker_heartbeat_is_accepted(sidecar):
    report = {"id": str(uuid4()), "host": "a", "pid": 1, "version": "1", "started_at": START.isoformat(),
            "offers": ["webhooks"], "in_flight": 0, "beat": 1}
    answer = sidecar.publish("worker", report)
    assert (str(answer.event_id), answer.status) == (report["id"], "recorded")
    assert isinstance(sidecar.publish("worker", report | {"colour": "red"}), ScheduleRejected)


def test_a_trigger_is_recognised_by_its_message_id():
    sidecar = Sidecar()
    job = {"id": str(uuid4())}
    sidecar.request(**job, job_type="t", run_at="2099-01-01T00:00:00Z")
    statuses = [sidecar.publish("trigger", job, message_id=each).status for each in ("a", "a", "b", None, None)]
    assert statuses == ["scheduled", "unchanged", "scheduled", "scheduled", "scheduled"]
    assert len(sidecar.due()) == 4
