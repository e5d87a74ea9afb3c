"""A form that is saved as it was shown has the stored schedule, which then goes on."""

from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import UUID

import pytest

from scheduler.api.console.form import read_form
from scheduler.api.console.form_values import values_of
from scheduler.api.console.pages.job_form import _same_schedule, stored
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import apply
from scheduler.domain.messages import COMMAND_MODELS
from scheduler.postgres.jobs.lists import JobListColumns, JobRow

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
], ids=str)
def test_a_form_saved_as_shown_has_the_stored_schedule(fields):
    command = COMMAND_MODELS["request"](id=ID, job_type="t", **fields)
    row = JobRow(apply(None, Incoming(command, str(ID)), NOW).job, JobListColumns(NOW, NOW, *[None] * 5))
    form = values_of(stored(row)) | {"name": "new"}
    assert _same_schedule(read_form(form, stored(row)), row)
    assert not _same_schedule(read_form(form | {"timezone": "Asia/Tokyo"}, stored(row)), row)
    assert not _same_schedule(SimpleNamespace(fields={"rrule": "nonsense"}), row)
