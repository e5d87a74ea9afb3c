"""Workers parse the producers' events, and the sidecar accepts all their results."""

import json
from datetime import UTC, datetime

import pika
import pytest

from scheduler.domain.errors import Rejected
from scheduler.domain.message_parser import parse_result
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.settings import Settings
from scheduler.workers.attempt import read_attempt
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.worker import Worker

EVENT = {
    "event_id": "0b2c4c1e-7a51-5b0a-8d3e-6b0f8c6d2a10", "job_id": "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11",
    "job_type": "invoice.reminder", "payload": {"invoice": 42}, "due_at": "2026-12-01T08:00:00.000000Z",
    "emitted_at": "2026-12-01T08:00:00.500000Z", "occurrence": 1, "missed": 0, "next_run_at": None,
    "target": {"webhook": {"url": "https://example.org/"}},
    "run": {"attempt": 2, "attempts_left": 1, "max_attempts": 3, "deadline": "2026-12-01T08:00:10.500000Z",
            "timeout": 12.5, "max_delay": 99},
}


def delivered(event=EVENT, **headers):
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    return Delivery(1, "webhook", pika.BasicProperties(headers=headers or None), body, False, len(body))


def test_an_attempt_is_read_with_its_limits():
    attempt = read_attempt(delivered(traceparent="00-1-2-01", other=7))
    assert attempt.key == (EVENT["event_id"], 2)
    assert (attempt.timeout, attempt.max_delay, attempt.start_timeout) == (12.5, 99, 10.0)
    assert (attempt.traceparent, attempt.tracestate) == ("00-1-2-01", None)
    assert attempt.target == EVENT["target"]


@pytest.mark.parametrize("event", [
    b"not json", b"[]", EVENT | {"event_id": "x"}, EVENT | {"run": {}}, EVENT | {"run": {"attempt": 0}},
    {key: value for key, value in EVENT.items() if key != "run"},
])
def test_what_is_no_attempt_is_refused(event):
    with pytest.raises(Rejected):
        read_attempt(delivered(event))


@pytest.mark.parametrize("outcome", [
    WorkOutcome.succeeded({"status_code": 204}),
    WorkOutcome.failed("no", retry=False, output={"a": 1}),
    WorkOutcome.failed("later", retry_in=1 / 3),
    WorkOutcome.failed("x" * 100_000),
    WorkOutcome.snoozed(0),
    WorkOutcome.snoozed(1e12),
    WorkOutcome.failed("nul \x00 and half a pair \ud800", output={"\x00": ["\udc80", "\U0001f600", "\\ud800"]}),
])
def test_every_outcome_is_a_result_that_the_sidecar_takes(outcome):
    attempt = read_attempt(delivered())
    result = parse_result("result", attempt.result(outcome, "host:1", Worker(Settings()).started_at))
    assert (result.event_id, result.attempt, result.status) == (*attempt.key, outcome.status)
    assert (result.retry, result.worker) == (outcome.retry, "host:1")


def test_the_status_message_has_current_work_and_counts():
    worker = Worker(Settings())
    attempt = read_attempt(delivered())
    worker.offer("webhooks", "webhooks")
    worker.begin(attempt, "example.org", datetime.now(UTC))
    status = worker.status_message()
    assert (status.offers, status.in_flight, status.busy[0].what) == (("webhooks",), 1, "example.org")
    worker.end(attempt, WorkOutcome.succeeded())
    worker.end(attempt, WorkOutcome.snoozed(1))
    later = worker.status_message(leaving=True)
    assert (later.in_flight, later.succeeded, later.failed, later.snoozed, later.leaving) == (0, 1, 0, 1, True)
    assert later.beat > status.beat
