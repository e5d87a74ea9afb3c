"""Results and policies: what each field may say, and what is said about what it may not."""

import json
from uuid import uuid4

import pytest

from scheduler.domain.errors import Rejected
from scheduler.domain.parsing import parse_command, parse_result
from scheduler.domain.runs.result import OUTPUT_BYTES

GOOD = {"event_id": "0B2C4C1E-7A51-5B0A-8D3E-6B0F8C6D2A10", "attempt": 1, "status": "running"}


def result(**fields):
    return parse_result("result", json.dumps(GOOD | fields).encode())


@pytest.mark.parametrize(("wrong", "field", "problem"), [
    ({"attempt": 0}, "attempt", "greater than or equal to 1"),
    ({"attempt": "1"}, "attempt", "must be a whole number"),
    ({"attempt": True}, "attempt", "must be a whole number"), ({"status": "done"}, "status", "must be 'running'"),
    ({"status": "snoozed"}, "retry_in", "is required with snoozed"),
    ({"heartbeat": 0.5}, "heartbeat", "equal to 1"),
    ({"progress": 2}, "progress", "less than or equal to 1"), ({"worker": "w" * 201}, "worker", "at most 200"),
    ({"eror": "x"}, "eror", "did you mean 'error'?"), ({"event_id": "x"}, "event_id", "must be a UUID"),
    ({"retry": 1}, "retry", "must be true or false"), ({"error": 5}, "error", "must be a string"),
    ({"retry_in": -1}, "retry_in", "greater than or equal to 0"),
    ({"started_at": "now"}, "started_at", "RFC 3339"),
])
def test_a_malformed_result_says_which_field_is_wrong(wrong, field, problem):
    with pytest.raises(Rejected) as rejected:
        result(**wrong)
    [found] = rejected.value.problems
    assert found.field == field
    assert problem in found.problem


@pytest.mark.parametrize(("run", "field"), [
    ({"timeout": 0}, "run.timeout"), ({"max_attempts": 101}, "run.max_attempts"),
    ({"max_attempts": 1.5}, "run.max_attempts"),
    ({"backoff": "often"}, "run.backoff"), ({"backoff": []}, "run.backoff"), ({"backoff": [-1]}, "run.backoff"),
    ({"overlap": "maybe"}, "run.overlap"), ({"retries": 3}, "run.retries"), ([], "run"), ("yes", "run"),
    ({"delay": -1}, "run.delay"), ({"start_timeout": 604_801}, "run.start_timeout"),
    ({"max_delay": "1"}, "run.max_delay"),
])
def test_a_policy_out_of_range_says_which_field_is_wrong(run, field):
    body = {"id": str(uuid4()), "job_type": "a", "run_at": "2027-01-01T00:00:00Z", "run": run}
    with pytest.raises(Rejected) as rejected:
        parse_command("request", json.dumps(body).encode(), max_payload_bytes=1000)
    assert {each.field for each in rejected.value.problems} == {field}


def test_a_result_is_kept_as_it_came_but_for_what_is_too_long():
    body = json.dumps(GOOD)[:-1] + ', "output": {"price": 1.10,  "of": [null]}, "error": "' + "e" * 5000 + '"}'
    kept = parse_result("result", body.encode())
    assert (kept.event_id, kept.output_cut) == (GOOD["event_id"].lower(), False)
    assert kept.output == '{"price": 1.10,  "of": [null]}'
    assert len(kept.error) == 4000
    cut = result(status="succeeded", output={"text": "é" * OUTPUT_BYTES})
    assert cut.output_cut
    assert json.loads(cut.output).startswith('{"text": "')
    assert len(json.loads(cut.output).encode()) <= OUTPUT_BYTES
    assert result(output=None).output is None


def test_what_is_not_a_result_at_all():
    for key, body in (("result", b"[]"), ("result", b"{"), ("request", json.dumps(GOOD).encode())):
        with pytest.raises(Rejected):
            parse_result(key, body)
