"""A calendar, a window and jitter in words, in lists of occurrences and in the year."""

from datetime import UTC, date, datetime

import pytest

from scheduler.api.console.adjustment_description import describe_adjustments
from scheduler.api.console.occurrence_rows import preview_rows
from scheduler.api.console.year_calendar import build_year, year_of_calendar
from scheduler.api.console.year_plan import MAX_PLANNED, plan_year
from scheduler.domain.calendars import EffectiveCalendar, content_text
from scheduler.domain.calendars import business_calendar as parsed
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import apply
from scheduler.domain.messages import COMMAND_MODELS
from scheduler.postgres.jobs.lists import JobListColumns, JobRow
from scheduler.views.occurrences import preview_page

ID = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
DE = {"weekend": ["SA", "SU"], "closed": {"2026-12-25": "Christmas Day"}, "open": {"2026-12-19": "Bridge day"},
      "valid_until": "2026-12-31"}
CALENDAR = EffectiveCalendar(parsed(content_text(DE)), 1, 1)


@pytest.mark.parametrize(("fields", "text"), [
    ({}, ""),
    ({"calendar": "de"}, "Occurrences on closed days of de are skipped"),
    ({"calendar": "de", "on_closed": "next_in_month", "jitter": 90},
     "Occurrences on closed days of de move to an open day of the same month; spread by up to 1 min 30 s"),
    ({"window": {"from": "09:00", "to": "17:00", "days": ["MO", "TU", "WE", "TH", "FR"]}},
     "Only between 09:00 and 17:00, weekdays"),
    ({"window": {"from": "22:00", "to": "06:00"}}, "Only between 22:00 and 06:00"),
])
def test_adjustments_in_words(fields, text):
    assert describe_adjustments(fields) == text


def test_a_preview_says_what_moved_and_what_is_skipped_and_why():
    fields = {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "calendar": DE, "on_closed": "next", "count": 3,
              "after": "2026-12-23T12:00:00Z"}
    rows = preview_rows(preview_page(fields, NOW))
    assert [(row["utc"][:10], row["skipped"]) for row in rows] == [
        ("2026-12-24", False), ("2026-12-25", True), ("2026-12-26", True), ("2026-12-27", True),
        ("2026-12-28", False), ("2026-12-29", False)]
    assert "Friday 25 December is closed (Christmas Day)" in rows[1]["note"]
    [_, moved] = preview_rows(preview_page(fields | {"cron": "0 9 24,25 12 *", "count": 2}, NOW))
    assert moved["note"] == "Friday 25 December is closed (Christmas Day): moved to Monday 28 December"
    assert moved["instead"] == "2026-12-25T08:00:00Z"


def test_many_skipped_in_a_row_are_one_line():
    window = {"from": "09:00", "to": "17:00"}
    fields = {"every": "PT15M", "run_at": "2026-12-01T00:00:00Z", "window": window, "count": 40,
              "after": "2026-12-01T16:00:00Z"}
    rows = [row for row in preview_rows(preview_page(fields, NOW)) if row["skipped"]]
    assert rows[0]["note"].endswith("; and 63 more")


def row(**fields):
    command = COMMAND_MODELS["request"](id=ID, job_type="t", **fields)
    return JobRow(apply(None, Incoming(command, ID), NOW, lambda *_: CALENDAR).job,
                  JobListColumns(NOW, NOW, *[None] * 5))


def year_of(job, past=None):
    year = build_year(past or {}, plan_year(job, CALENDAR, NOW), "Europe/Berlin", NOW)
    return {day.date: day for day in year.days}


def test_a_year_shows_closed_days_and_moved_occurrences():
    days = year_of(row(cron="0 9 20,25 * *", timezone="Europe/Berlin", calendar="de", on_closed="next"),
                   {date(2026, 11, 28): {"succeeded": 1}})
    assert days[date(2026, 12, 25)].title == "Fri 25 Dec 2026: closed (Christmas Day)"
    assert (days[date(2026, 12, 25)].kind, days[date(2026, 12, 26)].kind) == ("closed", "closed")
    assert days[date(2026, 12, 28)].title == "Mon 28 Dec 2026: 1 run planned, moved from Fri 25 Dec"
    assert (days[date(2026, 12, 28)].kind, days[date(2026, 12, 28)].moved) == ("planned", True)
    assert days[date(2026, 12, 19)].title == "Sat 19 Dec 2026: nothing"
    assert days[date(2026, 11, 28)].kind == "good"  # what happened counts more than the calendar


def test_a_year_of_a_dense_job_is_bounded():
    days = year_of(row(every=60, run_at="2026-12-01T00:00:00Z", timezone="Europe/Berlin", calendar="de"))
    assert days[date(2026, 12, 1)].title == "Tue 1 Dec 2026: 659 runs planned"
    assert days[date(2026, 12, 2)].title == "Wed 2 Dec 2026: 1,440 runs planned"
    assert days[date(2027, 5, 3)].title == "Mon 3 May 2027: 1,440 runs planned"
    assert days[date(2027, 5, 8)].title == "Sat 8 May 2027: closed"
    assert MAX_PLANNED < 366 * 1440


def test_the_year_of_a_calendar():
    days = {day.date: day for day in year_of_calendar(CALENDAR.calendar, 2026, date(2026, 12, 1)).days}
    assert len(days) == 365
    assert (days[date(2026, 12, 25)].kind, days[date(2026, 12, 25)].title) == (
        "holiday", "Fri 25 Dec 2026: closed (Christmas Day)")
    assert (days[date(2026, 12, 26)].kind, days[date(2026, 12, 26)].title) == (
        "closed", "Sat 26 Dec 2026: closed (Saturday)")
    assert (days[date(2026, 12, 19)].kind, days[date(2026, 12, 19)].title) == (
        "good", "Sat 19 Dec 2026: open (Bridge day)")
    assert days[date(2026, 12, 1)].today
