"""Previews: at either end of time, where moments are shown in UTC, and with a calendar."""

import pytest

EARLIEST, LATEST = "0001-01-01T00:00:00Z", "9999-12-31T23:00:00Z"
SCHEDULES = [
    {"run_at": LATEST, "timezone": "Asia/Tokyo"},
    {"run_at": EARLIEST, "timezone": "America/New_York"},
    {"run_at": "0001-01-01T00:00:00.000001Z", "timezone": "America/New_York"},
    {"run_at": "9999-12-31T14:30:00Z", "every": "PT1H", "timezone": "Asia/Tokyo"},
    {"run_at": "2099-01-01T00:00:00Z", "rrule": "FREQ=DAILY;UNTIL=99991231T235959Z", "timezone": "Asia/Tokyo"},
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_job_at_the_end_of_the_calendar_is_shown_everywhere(served, schedule):
    job = served.job(**schedule)
    for path in ("/", "/jobs", f"/jobs/{job['id']}", f"/jobs/{job['id']}/edit"):
        assert served.page(path)
    assert served.get(f"/jobs/{job['id']}/occurrences").status == 200
    assert served.get(f"/jobs/{job['id']}/occurrences", **{"from": EARLIEST}).status == 200


def test_occurrences_outside_the_zones_range_are_shown_in_utc(served):
    last = {"local": "9999-12-31T23:00:00+00:00", "utc": LATEST, "note": ""}
    once = {"run_at": LATEST, "timezone": "Asia/Tokyo"}
    assert served.post("/preview", once).json["items"] == [last]
    job = served.job(**once)
    for asked in ({}, {"from": EARLIEST}, {"from": LATEST}):
        assert served.get(f"/jobs/{job['id']}/occurrences", **asked).json["items"] == [last]
    every = {"every": "PT30M", "timezone": "Asia/Tokyo", "after": "9999-12-31T14:00:00Z", "count": 2}
    assert [item["local"] for item in served.post("/preview", every).json["items"]] == [
        "9999-12-31T23:30:00+09:00", "9999-12-31T15:00:00+00:00"]


def test_a_preview_with_a_calendar_shows_what_is_moved_and_skipped(served):
    calendar = {"weekend": ["SA", "SU"], "closed": {"2026-12-25": "Christmas Day"}}
    fields = {"rrule": "FREQ=DAILY", "run_at": "2026-12-25T09:00:00Z", "calendar": calendar, "count": 1}
    answer = served.post("/preview", fields | {"on_closed": "next"}).json
    assert answer["next"] is None
    assert [item["utc"] for item in answer["items"]] == ["2026-12-28T09:00:00Z"]
    assert [(each["nominal_at"], each["reason"]) for each in answer["skipped"]] == [
        (f"2026-12-{day}T09:00:00Z", "merged") for day in (25, 26, 27)]
    (item,) = served.post("/preview", fields | {"rrule": "FREQ=WEEKLY", "on_closed": "next"}).json["items"]
    assert (item["nominal_at"], item["moved"]) == ("2026-12-25T09:00:00Z", ["calendar"])
    assert "Christmas Day" in item["note"]
    rejected = served.post("/preview", fields | {"calendar": "de"})
    assert (rejected.status, [error["field"] for error in rejected.json["errors"]]) == (422, ["calendar"])
    plain = served.post("/preview", {"every": 60, "run_at": "2026-12-25T09:00:00Z", "count": 1}).json
    assert plain == {"items": [{"local": "2026-12-25T09:00:00+00:00", "utc": "2026-12-25T09:00:00Z", "note": ""}],
                     "next": None}
