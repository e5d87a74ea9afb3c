"""Fields of results and policies: valid values, and problems of invalid ones."""

import json
from uuid import uuid4

import pytest

from scheduler.domain.errors import Rejected
from scheduler.domain.message_parser import parse_command, parse_result
from scheduler.domain.runs.result import OUTPUT_BYTES

GOOD = {"event_id": "0B2C4C1E-7A51-5B0A-8D3E-6B0F8C6D2A10", "attempt": 1, "status": "running"}


def result(**fields):
    return parse_result("result", json.dumps(GOOD | fields).encode())


@pytest.mark.parametrize(("wrong", "field", "problem"), [
    ({"event_id": "x"}, "event_id", "must be a UUID"), ({"event_id": 5}, "event_id", "must be a string: a UUID"),
    ({"event_id": None}, "event_id", "must be a string: a UUID"),
    ({"attempt": 0}, "attempt", "greater than or equal to 1"), ({"attempt": -1}, "attempt", "equal to 1"),
    ({"attempt": "1"}, "attempt", "must be a whole number"), ({"attempt": 1.5}, "attempt", "whole number"),
    ({"attempt": True}, "attempt", "must be a whole number"), ({"attempt": 2**31}, "attempt", "2147483647"),
    ({"attempt": None}, "attempt", "must be a whole number"),
    ({"status": "done"}, "status", "must be 'running', 'succeeded', 'failed' or 'snoozed'"),
    ({"status": 1}, "status", "must be 'running'"), ({"status": None}, "status", "must be 'running'"),
    ({"error": 5}, "error", "must be a string"), ({"error": ["x"]}, "error", "must be a string"),
    ({"retry": 1}, "retry", "must be true or false"), ({"retry": "yes"}, "retry", "must be true or false"),
    ({"status": "snoozed"}, "retry_in", "is required with snoozed"),
    ({"retry_in": -1}, "retry_in", "greater than or equal to 0"), ({"retry_in": "5"}, "retry_in", "a number"),
    ({"retry_in": True}, "retry_in", "must be a number"), ({"retry_in": 1e11}, "retry_in", "less than"),
    ({"heartbeat": 0.5}, "heartbeat", "equal to 1"), ({"heartbeat": "30"}, "heartbeat", "must be a number"),
    ({"heartbeat": True}, "heartbeat", "must be a number"),
    ({"progress": 2}, "progress", "less than or equal to 1"), ({"progress": -0.1}, "progress", "equal to 0"),
    ({"progress": "half"}, "progress", "must be a number"), ({"progress": True}, "progress", "must be a number"),
    ({"worker": "w" * 201}, "worker", "at most 200"), ({"worker": 7}, "worker", "must be a string"),
    ({"started_at": "now"}, "started_at", "RFC 3339"), ({"started_at": 1700000000}, "started_at", "RFC 3339"),
    ({"finished_at": "2026-12-01"}, "finished_at", "RFC 3339"), ({"finished_at": True}, "finished_at", "RFC 3339"),
    ({"eror": "x"}, "eror", "did you mean 'error'?"), ({"id": str(uuid4())}, "id", "is not a field of"),
])
def test_a_malformed_result_says_which_field_is_wrong(wrong, field, problem):
    with pytest.raises(Rejected) as rejected:
        result(**wrong)
    [found] = rejected.value.problems
    assert found.field == field
    assert problem in found.problem


@pytest.mark.parametrize("field", ["event_id", "attempt", "status"])
def test_what_a_result_cannot_do_without(field):
    with pytest.raises(Rejected) as rejected:
        parse_result("result", json.dumps({name: value for name, value in GOOD.items() if name != field}).encode())
    assert [(problem.field, problem.problem) for problem in rejected.value.problems] == [(field, "is required")]


def test_what_a_result_may_say():
    full = result(
        status="failed", error="", output=0, retry=False, retry_in=0.5, worker="w" * 200, progress=1,
        heartbeat=1, started_at="2026-12-01T08:00:00.5+01:00", finished_at="2026-12-01T08:00:01Z",
    )
    assert (full.error, full.output, full.retry, full.retry_in, full.progress) == ("", "0", False, 0.5, 1.0)
    assert full.started_at.isoformat() == "2026-12-01T07:00:00.500000+00:00"
    assert result(status="snoozed", retry_in=30 * 86400).retry_in == 30 * 86400  # no week binds a worker
    assert result(output=False).output == "false"
    nothing = dict.fromkeys(("error", "output", "retry_in", "heartbeat", "progress", "worker", "started_at"))
    assert result(**nothing) == result()


@pytest.mark.parametrize("wrong", [
    {}, {"event_id": "x"}, {"event_id": str(uuid4()), "issued_at": "now"}, {"event_id": str(uuid4()), "id": 1},
])
def test_a_malformed_retry_is_rejected(wrong):
    with pytest.raises(Rejected) as rejected:
        parse_command("retry", json.dumps(wrong).encode(), max_payload_bytes=1000)
    [problem] = rejected.value.problems
    assert problem.field == [*wrong, "event_id"][-1 if len(wrong) < 2 else 1]


SECONDS = (("start_timeout", 1), ("timeout", 1), ("delay", 0), ("max_delay", 0))


def policy(run):
    body = {"id": str(uuid4()), "job_type": "a", "run_at": "2027-01-01T00:00:00Z", "run": run}
    return parse_command("request", json.dumps(body).encode(), max_payload_bytes=1000).command.run


@pytest.mark.parametrize(("run", "field"), [
    *(({name: wrong}, f"run.{name}") for name, least in SECONDS
      for wrong in (least - 0.5, 604_801, "1", True, [60], None, {})),
    *(({"max_attempts": wrong}, "run.max_attempts") for wrong in (0, -1, 101, 1.5, "3", True, None)),
    *(({"backoff": wrong}, "run.backoff")
      for wrong in ("often", "", [], [-1], [604_801], ["1"], [True], [None], 5, {}, None, True)),
    *(({"overlap": wrong}, "run.overlap") for wrong in ("maybe", "", True, None, ["skip"])),
    ({"retries": 3}, "run.retries"), ({"": 3}, "run."), ([], "run"), ("yes", "run"), (True, "run"), (1, "run"),
])
def test_a_policy_out_of_range_says_which_field_is_wrong(run, field):
    with pytest.raises(Rejected) as rejected:
        policy(run)
    assert {problem.field for problem in rejected.value.problems} == {field}
    assert all(problem.problem for problem in rejected.value.problems)


def test_what_a_policy_may_say():
    assert policy(None) is None
    assert policy({}).model_dump(mode="json") == {
        "start_timeout": 3600, "timeout": 300, "max_attempts": 3, "backoff": "exponential", "delay": 60,
        "max_delay": 3600, "overlap": "allow", "max_running": None,
    }
    for name, least in SECONDS:
        assert [getattr(policy({name: each}), name) for each in (least, 1.25, 604_800)] == [least, 1.25, 604_800]
    assert policy({"max_attempts": 100, "backoff": [0, 0.5, 604_800]}).backoff == (0, 0.5, 604_800)


def test_a_result_is_kept_as_it_came_but_for_what_is_too_long():
    body = json.dumps(GOOD)[:-1] + ', "output": {"price": 1.10,  "of": [null]}, "error": "' + "e" * 5000 + '"}'
    parsed = parse_result("result", body.encode())
    assert (parsed.event_id, parsed.output_cut) == (GOOD["event_id"].lower(), False)
    assert parsed.output == '{"price": 1.10,  "of": [null]}'
    assert len(parsed.error) == 4000
    cut = result(status="succeeded", output={"text": "é" * OUTPUT_BYTES})
    assert cut.output_cut
    assert json.loads(cut.output).startswith('{"text": "')
    assert len(json.loads(cut.output).encode()) <= OUTPUT_BYTES
    assert result(output=None).output is None


def test_what_is_not_a_result_at_all():
    for key, body in (("result", b"[]"), ("result", b"{"), ("request", json.dumps(GOOD).encode())):
        with pytest.raises(Rejected):
            parse_result(key, body)
