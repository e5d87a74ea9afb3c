"""The reports of a Runner are always accepted by the sidecar."""

import inspect
import json
from uuid import uuid4

import pytest
from pydantic import BaseModel

from scheduler.client import GiveUp, Runner, Snooze
from scheduler.client.results import AttemptReport, NotJson, tracked
from scheduler.domain.message_parser import parse_result
from scheduler.domain.messages import ResultStatus
from scheduler.settings import load

EVENT = uuid4()
ATTEMPT = AttemptReport(EVENT, 2, "w")


class Receipt(BaseModel):
    number: int


class Shy:
    def __repr__(self):
        raise RuntimeError("no")


def endless():
    value = []
    value.append(value)
    return value


def deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(("returned", "output"), [
    (None, None),
    ({"a": [1, 2.5, "é"]}, {"a": [1, 2.5, "é"]}),
    (Receipt(number=7), {"number": 7}),
    ("a\x00b", "'a\\x00b'"),
    ("\ud800", "'\\ud800'"),
])
def test_a_returned_value_is_reported_as_json_and_text_that_postgres_cannot_hold_by_its_repr(returned, output):
    said = ATTEMPT.succeeded(returned, started_at="2026-01-01T00:00:00Z")
    assert parse_result("result", said).status == "succeeded"
    assert json.loads(said).get("output") == output


@pytest.mark.parametrize(("returned", "kind"), [
    ({3}, "set"), (float("nan"), "float"), (endless(), "list"), (Shy(), "Shy"), (deep(), "list"),
    (Receipt.model_construct(number=object()), "Receipt"),
])
def test_a_returned_value_that_is_not_json_fails_the_attempt_for_good(returned, kind):
    with pytest.raises(NotJson, match=f"type {kind} that is not JSON") as caught:
        ATTEMPT.succeeded(returned)
    failed = parse_result("result", ATTEMPT.failed(caught.value))
    assert not failed.retry
    assert "return JSON values" in failed.error


def test_letters_of_any_script_are_counted_as_they_are_and_not_by_their_escapes():
    result = parse_result("result", ATTEMPT.succeeded("ж" * 12_000))
    assert (json.loads(result.output), result.output_cut) == ("ж" * 12_000, False)
    assert json.loads(ATTEMPT.encode(ResultStatus.RUNNING, error="lone: \ud83d"))["error"].endswith("\ud83d")


def test_an_output_without_end_is_cut_before_it_is_sent():
    said = ATTEMPT.succeeded(["x" * 100] * 100_000)
    assert len(said) < 1_000_000
    assert parse_result("result", said).output_cut


def test_a_long_traceback_keeps_its_end():
    body = json.loads(ATTEMPT.failed(RuntimeError("x" * 9_000 + "\x00 the end")))
    assert len(body["error"]) == 4_000
    assert body["error"].endswith("\\x00 the end\n")
    assert body["retry"]


def test_a_handler_may_snooze_or_give_up():
    assert parse_result("result", ATTEMPT.failed(Snooze(5))).retry_in == 5
    given_up = parse_result("result", ATTEMPT.failed(GiveUp("no such invoice")))
    assert (given_up.error, given_up.retry) == ("no such invoice", False)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"event_id": 1}', b'{"run": {"attempt": 1}}'])
def test_what_is_not_an_event_of_a_tracked_job_is_not_reported(body):
    assert tracked(body) is None
    assert tracked(json.dumps({"event_id": str(EVENT), "run": None}).encode()) is None
    assert tracked(json.dumps({"event_id": str(EVENT), "run": {"attempt": 2}}).encode(), "w") == ATTEMPT


def test_a_runner_that_dies_is_noticed_within_30_seconds():
    """After the promised heartbeat interval and the longest sleep of a producer."""
    heartbeat = inspect.signature(Runner).parameters["heartbeat"].default
    assert json.loads(ATTEMPT.running(heartbeat))["heartbeat"] + load({}).poll_interval_ms / 1000 < 30
