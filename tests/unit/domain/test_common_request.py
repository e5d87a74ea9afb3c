"""Requests without rare fields are parsed to smaller objects that read like any other."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from scheduler.domain.common_request import COMMON_FIELDS, RARE_FIELDS
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.job import apply
from scheduler.domain.message_parser import parse_command
from scheduler.domain.messages import ScheduleRequest

NOW = datetime(2026, 11, 19, tzinfo=UTC)
REQUESTS = [
    {"run_at": "2026-12-01T08:00:00Z"},
    {"run_at": "2026-12-01T08:00:00", "timezone": "Europe/Berlin", "name": "n", "max_lateness": 5},
    {"run_at": "now"},
    {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "on_missed": "all", "priority": "high", "route": "a.b"},
    {"every": 60, "run": {"max_attempts": 2}, "tenant": "acme", "issued_at": "2026-11-18T00:00:00Z"},
    {"run_at": "2026-12-01T08:00:00Z", "target": {"webhook": {"url": "https://example.com/"}}},
]


def parsed(**fields):
    body = {"id": str(uuid4()), "job_type": "t"} | fields
    return parse_command("request", json.dumps(body).encode(), max_payload_bytes=1000)


@pytest.mark.parametrize("fields", REQUESTS)
def test_a_request_without_rare_fields_has_none_of_them_and_reads_their_defaults(fields):
    command = parsed(**fields).command
    assert set(command.__dict__) == COMMON_FIELDS
    whole = ScheduleRequest(id=command.id, job_type="t", **fields)
    assert set(whole.__dict__) == COMMON_FIELDS | RARE_FIELDS
    assert {name: getattr(command, name) for name in ScheduleRequest.model_fields} == dict(whole)
    assert command.model_fields_set == whole.model_fields_set


@pytest.mark.parametrize("fields", REQUESTS)
def test_it_defines_the_same_job(fields):
    incoming = parsed(**fields)
    whole = replace(incoming, command=ScheduleRequest(id=incoming.command.id, job_type="t", **fields))
    assert apply(None, incoming, NOW) == apply(None, whole, NOW)


@pytest.mark.parametrize("name", sorted(RARE_FIELDS))
def test_a_request_with_a_rare_field_has_all_of_them(name):
    """Even if it gives the default; `on_closed` without a calendar is an error."""
    command = parsed(run_at="2026-12-01T08:00:00Z", **{name: ScheduleRequest.model_fields[name].default}).command
    assert set(command.__dict__) == COMMON_FIELDS | RARE_FIELDS


@pytest.mark.parametrize("wrong", [{"rule": "x"}, {"run_at": 5}, {"job_type": ""}, {"priority": "top", "rrul": 1}])
def test_a_wrong_request_has_the_same_problems(wrong):
    problems = []
    for rare in ({}, {"description": "d"}):
        with pytest.raises(Rejected) as rejected:
            parsed(**wrong, **rare)
        problems.append(rejected.value.problems)
    assert problems[0] == problems[1]


def test_an_unknown_calendar_rule_still_applies():
    with pytest.raises(Rejected) as rejected:
        parsed(run_at="2026-12-01T08:00:00Z", on_closed="skip")
    assert [problem.field for problem in rejected.value.problems] == ["on_closed"]
