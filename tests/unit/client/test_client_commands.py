"""Host calls become exactly the messages of the contract, or an error that names the field."""

import json
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel

from scheduler.client import CommandRejected, Outbox, job_id
from scheduler.client.clock import IssuingClock
from scheduler.client.commands import order, request
from scheduler.client.database import tables
from scheduler.domain.messages import COMMAND_MODELS

JOB = uuid4()


def test_the_same_key_is_the_same_job_in_every_process():
    assert job_id("invoice", 42) == UUID("ac65a4a8-53cc-5db5-ab4d-a9209638447b")


def test_no_two_keys_are_the_same_job():
    u = UUID("7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11")
    keys = [
        ("invoice", 42), ("invoice", "42"), ("invoice42",), ("invoice", 4, 2), ("invoi", "ce42"), (42, "invoice"),
        ("invoice", -42), ("", "invoice", 42), (u,), (str(u),), ("s1:a",), ("a", ""), ("a",), ("s", "1:a"),
    ]
    assert len({job_id(*key) for key in keys}) == len(keys)


@pytest.mark.parametrize("key", [(), (True,), (1.5,), (None,)])
def test_a_key_that_could_mean_two_things_is_refused(key):
    with pytest.raises((TypeError, ValueError)):
        job_id(*key)


def test_issued_at_never_repeats_though_the_clock_stands_still_or_goes_back():
    readings = iter([5_000, 5_000, 1_000, 9_000])
    clock = IssuingClock(lambda: next(readings))
    assert [each.microsecond for each in (clock(), clock(), clock(), clock())] == [5, 6, 7, 9]


def test_python_values_become_the_fields_of_the_contract():
    class Reminder(BaseModel):
        invoice: int
        due: datetime

    outgoing = request(JOB, "invoice.reminder", Reminder(invoice=42, due=datetime(2026, 1, 2, tzinfo=UTC)), {
        "run_at": datetime(2026, 12, 1, 9),  # noqa: DTZ001 - wall time in `timezone`
        "every": timedelta(minutes=15), "timezone": ZoneInfo("Europe/Berlin"),
        "max_lateness": timedelta(hours=1), "on_missed": "skip",
    })
    assert json.loads(outgoing.body(lambda: datetime(2026, 11, 30, 17, 21, 9, 123456, UTC))) == {
        "id": str(JOB), "job_type": "invoice.reminder",
        "payload": {"invoice": 42, "due": "2026-01-02T00:00:00Z"},
        "run_at": "2026-12-01T09:00:00", "every": 900.0, "timezone": "Europe/Berlin",
        "max_lateness": 3600.0, "on_missed": "skip", "issued_at": "2026-11-30T17:21:09.123456Z",
    }


@pytest.mark.parametrize(("fields", "field"), [
    ({"rrule": "FREQ=DAYLY"}, "rrule"),
    ({"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "rrule"),
    ({"cron": "61 * * * *"}, "cron"),
    ({"cron": "0 9 * * *", "every": 5}, "cron"),
    ({"run_at": "2026-12-01"}, "run_at"),
    ({"cron": "@daily", "timezone": "Mars/Olympus"}, "timezone"),
    ({"cron": "@daily", "issued_at": datetime(2026, 1, 1)}, "issued_at"),  # noqa: DTZ001 - the point
    ({}, "run_at"),
])
def test_what_the_sidecar_would_reject_is_an_error_at_once(fields, field):
    with pytest.raises(CommandRejected) as caught:
        request(JOB, "test.job", {}, fields)
    assert field in [error.field for error in caught.value.errors]


@pytest.mark.parametrize("payload", [{"x": float("nan")}, {"x": object()}, {"x": "\x00"}])
def test_a_payload_that_is_not_json_is_an_error_at_once(payload):
    with pytest.raises(CommandRejected) as caught:
        request(JOB, "test.job", payload, {"every": 60})
    assert caught.value.errors[0].field.startswith("payload")


def test_an_id_must_be_a_uuid():
    with pytest.raises(CommandRejected) as caught:
        order("cancel", "invoice-42", {})
    assert caught.value.errors[0].field == "id"


def test_the_run_policy_is_sent_unchanged():
    policy = {"max_attempts": 5, "backoff": [1, 2.5]}
    assert request(JOB, "test.job", {}, {"every": 60, "run": policy}).fields["run"] == policy
    assert request(JOB, "test.job", {}, {"every": 60, "run": {}}).fields["run"] == {}
    with pytest.raises(CommandRejected) as caught:
        request(JOB, "test.job", {}, {"every": 60, "run": {"max_attempts": 0}})
    assert caught.value.errors[0].field == "run.max_attempts"


def test_a_retry_is_about_a_run():
    outgoing = order("retry", JOB, {"issued_at": datetime(2026, 1, 1, tzinfo=UTC)})
    assert outgoing.fields == {"event_id": str(JOB), "issued_at": "2026-01-01T00:00:00.000000Z"}
    assert outgoing.message_type == "ScheduleRetry"
    with pytest.raises(CommandRejected) as caught:
        order("retry", "run-42", {})
    assert caught.value.errors[0].field == "event_id"


def test_a_mistyped_argument_is_an_error_and_not_silence():
    with pytest.raises(TypeError, match="rule"):
        request(JOB, "test.job", {}, {"every": 60, "rule": "FREQ=DAILY"})
    with pytest.raises(TypeError, match="run_at"):
        order("cancel", JOB, {"run_at": "2026-12-01T09:00:00Z"})


def test_a_hosts_table_takes_every_command_that_its_outbox_can_write():
    [listed] = re.findall(r"kind IN \(([^)]*)\)", tables())
    assert set(re.findall(r"'(\w+)'", listed)) == set(COMMAND_MODELS)
    assert all(hasattr(Outbox, "schedule" if kind == "request" else kind) for kind in COMMAND_MODELS)
