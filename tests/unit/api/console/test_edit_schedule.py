"""A form that is saved unchanged has the stored schedule, which then continues."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import UUID

import pytest

from scheduler.api.console.form import read_form
from scheduler.api.console.form_values import values_of
from scheduler.api.console.pages.job_form import _same_schedule
from scheduler.domain.calendars import any_calendar
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import apply
from scheduler.domain.message_parser import parse_command
from scheduler.domain.messages import COMMAND_MODELS, ScheduleRequest
from scheduler.postgres.jobs.lists import JobListColumns, JobRow
from scheduler.views.jobs import request_fields

ID = UUID("7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11")
NOW = datetime(2026, 11, 18, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize("fields", [
    {"run_at": "2026-11-18T09:00:00Z"},
    {"run_at": "2026-11-18T09:00:00", "timezone": "Europe/Berlin"},
    {"every": "PT15M"},
    {"every": 90, "run_at": "2026-01-01T09:00:00.5Z"},
    {"cron": "0 9 * * 1-5", "timezone": "America/New_York"},
    {"rrule": "FREQ=DAILY"},
    {"rrule": "FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "timezone": "Europe/Berlin"},
    {"rrule": "DTSTART;TZID=Europe/Berlin:20260101T090000\nRRULE:FREQ=DAILY;COUNT=500"},
    {"rrule": "FREQ=DAILY", "calendar": "de", "window": {"from": "22:00", "to": "06:00"}, "jitter": 60},
    {"run_at": "2026-12-18T09:00:00", "timezone": "Europe/Berlin", "calendar": "de", "on_closed": "nearest"},
    {"manual": True, "timezone": "Europe/Berlin"},
    {"run_at": "now"},
    {"run_at": "now", "every": 60},
], ids=str)
def test_a_form_saved_as_shown_has_the_stored_schedule(fields):
    command = COMMAND_MODELS["request"](id=ID, job_type="t", **fields)
    job = apply(None, Incoming(command, str(ID)), NOW, any_calendar).job
    row = JobRow(job, JobListColumns(NOW, NOW, *[None] * 5))
    form = values_of(request_fields(row)) | {"name": "new"}
    assert _same_schedule(read_form(form, request_fields(row)), row)
    assert not _same_schedule(read_form(form | {"timezone": "Asia/Tokyo"}, request_fields(row)), row)
    assert not _same_schedule(SimpleNamespace(fields={"rrule": "nonsense"}), row)


EVERY_FIELD = {
    "job_type": "t", "payload": {"a": [1, {"b": None}]}, "run_at": "2026-01-01T09:00:00Z",
    "timezone": "Europe/Berlin", "on_missed": "skip", "max_lateness": 60.5, "name": "old", "tenant": "acme",
    "description": "Two\nlines",
    "priority": "low", "calendar": "de", "on_closed": "next", "jitter": 600.5,
    "window": {"from": "09:00", "to": "18:00", "days": ["MO", "TU"]},
    "run": {"timeout": 60, "max_attempts": 5, "backoff": [10, 60, 600], "overlap": "skip", "start_timeout": 5,
            "max_running": 2},
}


@pytest.mark.parametrize("fields", [
    {"every": 90, "target": {"webhook": {
        "url": "https://example.org/hook", "method": "PUT", "headers": {"X-One": "1"}, "query": {"a": "b"},
        "body": {"due": "{{due_at}}"}, "timeout": 10, "secret": "main"}}},
    {"cron": "0 9 * * 1-5", "target": {
        "command": {"name": "nightly", "arguments": ["--day", "{{due_at}}"]}, "pool": "gpu"}},
    {"rrule": "FREQ=DAILY", "route": "a.b"},
], ids=str)
def test_an_edit_of_the_name_changes_nothing_else_of_the_stored_request(fields):
    definition = _row(EVERY_FIELD | fields).job.definition
    row = _row(EVERY_FIELD | fields)
    read = read_form(values_of(request_fields(row)) | {"name": "new"}, request_fields(row))
    assert read.problems == {}
    assert _row(read.fields).job.definition == replace(definition, name="new")


def test_the_stored_request_has_every_field_of_the_contract():
    missing = ScheduleRequest.model_fields.keys() - EVERY_FIELD.keys()
    assert missing == {
        "id", "issued_at", "rrule", "cron", "every", "route", "target", "manual", "paused",
    }


def _row(fields):
    incoming = parse_command("request", json.dumps({"id": str(ID)} | fields).encode(), max_payload_bytes=1 << 20)
    return JobRow(apply(None, incoming, NOW, any_calendar).job, JobListColumns(NOW, NOW, *[None] * 5))
