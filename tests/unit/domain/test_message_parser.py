import json
from uuid import uuid4

import pytest

from scheduler.domain.errors import Rejected
from scheduler.domain.instants import rfc3339
from scheduler.domain.message_parser import id_in_body, parse_command

ID = str(uuid4())


def parse(key, fields, limit=1000, **options):
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return parse_command(key, body, max_payload_bytes=limit, **options)


def problems(key, fields, **options):
    with pytest.raises(Rejected) as caught:
        parse(key, fields, **options)
    return {problem.field: problem.problem for problem in caught.value.problems}


def test_a_request_and_the_exact_text_of_its_payload():
    read = parse("request", b'{"id":"%s","job_type":"a","payload":{"p": 1.10}}' % ID.encode())
    assert str(read.command.id) == read.about == ID
    assert read.payload == '{"p": 1.10}'


def test_every_problem_is_found_at_once():
    found = problems("request", {"id": "x", "rule": "FREQ=DAILY", "payload": [], "max_lateness": "5"})
    assert set(found) == {"id", "job_type", "rule", "payload", "max_lateness"}
    assert found["job_type"] == "is required"
    assert found["rule"] == "is not a field of this command; did you mean 'rrule'?"
    assert found["payload"] == "must be a JSON object"


@pytest.mark.parametrize(("field", "value"), [
    ("job_type", ""), ("job_type", "x" * 201), ("job_type", 5), ("job_type", None),
    ("payload", "text"), ("payload", None), ("run_at", 1764576000), ("rrule", ["FREQ=DAILY"]),
    ("rrule", "x" * 4097), ("cron", {}), ("every", True), ("every", []), ("timezone", 1), ("timezone", None),
    ("on_missed", "never"), ("max_lateness", -1), ("max_lateness", True), ("max_lateness", 1e300),
    ("issued_at", "yesterday"), ("issued_at", "2026-12-01T08:00:00"), ("issued_at", 5),
    ("issued_at", "2026-02-30T08:00:00Z"), ("id", 7), ("id", "not-a-uuid"),
])
def test_a_wrong_value_is_reported_by_its_field(field, value):
    assert set(problems("request", {"id": ID, "job_type": "a"} | {field: value})) == {field}


@pytest.mark.parametrize("digits", ["1", "123", "123456", "1234567", "123456789", "1" * 30])
def test_an_instant_may_be_finer_than_we_keep_it(digits):
    issued_at = parse("cancel", {"id": ID, "issued_at": f"2026-12-01T08:00:00.{digits}+01:00"}).command.issued_at
    assert rfc3339(issued_at) == f"2026-12-01T07:00:00.{digits[:6]:0<6}Z"


@pytest.mark.parametrize("key", ["cancel", "pause", "resume", "trigger"])
def test_the_other_commands_take_id_and_issued_at_only(key):
    command = parse(key, {"id": ID, "issued_at": "2026-12-01T08:00:00.000001Z"}).command
    assert command.kind == key
    assert set(problems(key, {"id": ID, "payload": {}})) == {"payload"}


def test_an_unknown_routing_key_or_message_type_is_refused():
    assert "request, pause" in problems("reqest", {"id": ID})["routing_key"]
    assert "ScheduleCancel" in problems("cancel", {"id": ID}, message_type="ScheduleRequest")["type"]
    assert parse("cancel", {"id": ID}, message_type="ScheduleCancel")


def test_a_payload_over_the_limit_is_refused_before_and_after_parsing():
    found = problems("request", {"id": ID, "job_type": "a", "payload": {"x": "y" * 993}})
    assert "1,002 bytes" in found["payload"]
    assert parse("request", {"id": ID, "job_type": "a", "payload": {"x": "y" * 990}})
    assert "payload" in problems("request", b"x" * 70_000)


def test_the_id_of_a_rejected_command_where_it_can_be_read():
    assert id_in_body(b'{"id": "abc", "rule": 1}') == "abc"
    assert id_in_body(b'{"id": 5}') is None
    assert id_in_body(b"nonsense") is None
    assert id_in_body(b"[" * 100_000) is None


def test_an_id_is_one_however_it_is_spelt():
    for written in (ID, ID.upper(), ID.replace("-", ""), f"{{{ID}}}", f"urn:uuid:{ID}"):
        read = parse("cancel", {"id": written})
        assert str(read.command.id) == read.about == ID
