"""Calendars, windows and jitter: the contract's sentences one by one, and inputs that are meant to hurt."""

import time
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from uuid import UUID

import pytest
from recurrence_helpers import spec_of, utc

from scheduler.domain.errors import Rejected
from scheduler.domain.recurrence.adjustment_fields import checked_planner, read_adjustments
from scheduler.domain.recurrence.planner import Planner
from tests.call_count import CallCount

NEW_YORK, BERLIN, APIA = "America/New_York", "Europe/Berlin", "Pacific/Apia"
WEEKEND = {"weekend": ["SA", "SU"]}
CHRISTMAS = WEEKEND | {"closed": {"2026-12-25": "Christmas Day"}}
WEEK = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
ADJUSTMENTS = ("calendar", "on_closed", "window", "jitter")
JOB = UUID("7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11")


def planner_of(*, job_id=None, **fields):
    """Return the planner of a request's fields."""
    given = {name: fields.pop(name, None) for name in ADJUSTMENTS}
    return checked_planner(spec_of(keep_wall=True, **fields), read_adjustments(given), job_id)


def dues(planner, number, after=None):
    """Return the first due instants."""
    found = planner.all() if after is None else planner.after(utc(after))
    return [each.due_at for each in islice(found, number)]


def problems_of(**fields):
    """Return the problems by field."""
    with pytest.raises(Rejected) as verdict:
        planner_of(**fields)
    return {problem.field: problem.problem for problem in verdict.value.problems}


def closed(first, days):
    """Return a calendar that closes consecutive days."""
    start = date.fromisoformat(first)
    return {"closed": {(start + timedelta(days=number)).isoformat(): f"day {number}" for number in range(days)}}


def once(wall, zone=NEW_YORK, **fields):
    """Return the only occurrence of a one-shot."""
    (found,) = planner_of(run_at=wall, timezone=zone, **fields).all()
    return found


# The calendar


@pytest.mark.parametrize(
    ("on_closed", "wall", "moved"),
    [
        ("next", "2026-12-25T09:00:00", "2026-12-28T14:00:00Z"),
        ("previous", "2026-12-25T09:00:00", "2026-12-24T14:00:00Z"),
        ("nearest", "2026-12-25T09:00:00", "2026-12-24T14:00:00Z"),
        ("nearest", "2026-12-26T09:00:00", "2026-12-24T14:00:00Z"),  # two days either way: previous
        ("nearest", "2026-12-27T09:00:00", "2026-12-28T14:00:00Z"),
        ("next_in_month", "2026-12-25T09:00:00", "2026-12-28T14:00:00Z"),
        ("next_in_month", "2026-10-31T09:00:00", "2026-10-30T13:00:00Z"),  # a Saturday; Monday is in November
        ("next", "2026-10-31T09:00:00", "2026-11-02T14:00:00Z"),  # the wall-clock time stays
    ],
)
def test_an_occurrence_on_a_closed_day_is_moved(on_closed, wall, moved):
    result = once(wall, calendar=CHRISTMAS, on_closed=on_closed)
    nominal = spec_of(run_at=wall, timezone=NEW_YORK).starts_at
    assert (result.nominal_at, result.due_at, result.moved) == (nominal, utc(moved), ("calendar",))


def test_an_occurrence_on_an_open_day_stays():
    result = once("2026-12-24T09:00:00", calendar=CHRISTMAS, on_closed="next")
    assert (result.due_at, result.moved, result.merged) == (result.nominal_at, (), 0)


def test_closed_days_are_judged_by_the_local_date():
    # Friday evening in New York is Saturday in UTC, and Sunday evening is Monday.
    evenings = planner_of(rrule="FREQ=DAILY", run_at="2026-12-04T22:00:00", timezone=NEW_YORK, calendar=WEEKEND)
    assert dues(evenings, 2) == [utc("2026-12-05T03:00:00Z"), utc("2026-12-08T03:00:00Z")]


def test_the_wall_time_that_the_rule_names_is_kept_even_if_the_nominal_day_skips_it():
    rule = planner_of(rrule="FREQ=WEEKLY", run_at="2026-03-08T02:30:00", timezone=NEW_YORK, calendar=WEEKEND,
                      on_closed="next")  # fmt: skip
    found = next(rule.all())
    assert (found.nominal_at, found.due_at) == (utc("2026-03-08T07:30:00Z"), utc("2026-03-09T06:30:00Z"))
    assert once("2026-03-08T02:30:00", calendar=WEEKEND, on_closed="next").due_at == utc("2026-03-09T06:30:00Z")
    assert once("2026-03-08T07:30:00Z", calendar=WEEKEND, on_closed="next").due_at == utc("2026-03-09T07:30:00Z")
    cron = planner_of(cron="30 2 * * 0", stored_at=utc("2026-03-07T00:00:00Z"), timezone=NEW_YORK,
                      calendar=WEEKEND, on_closed="next")  # fmt: skip
    found = next(cron.all())
    assert (found.nominal_at, found.due_at) == (utc("2026-03-08T07:00:00Z"), utc("2026-03-09T06:30:00Z"))


def test_daylight_saving_is_resolved_after_the_move():
    saturday = {"calendar": {"closed": {"2026-03-07": ""}}, "on_closed": "next", "timezone": NEW_YORK}
    rule = planner_of(rrule="FREQ=DAILY;COUNT=1", run_at="2026-03-07T02:30:00", **saturday)
    assert dues(rule, 2) == [utc("2026-03-08T07:30:00Z")]  # 03:30, with the offset before the gap
    cron = planner_of(cron="30 2 * * *", stored_at=utc("2026-03-07T00:00:00Z"), **saturday)
    found = next(cron.all())  # 03:00, right after the gap, as Sunday's own, and so they are one
    assert (found.due_at, found.merged, found.moved) == (utc("2026-03-08T07:00:00Z"), 1, ())
    into_fold = once("2026-10-31T01:30:00", calendar={"closed": {"2026-10-31": ""}}, on_closed="next")
    assert into_fold.due_at == utc("2026-11-01T05:30:00Z")  # the first of its two instants


def test_the_two_passes_of_a_repeated_time_become_one_when_they_are_moved():
    sunday = {"calendar": {"closed": {"2026-11-01": ""}}, "on_closed": "next", "timezone": NEW_YORK}
    planner = planner_of(cron="*/30 1 * * *", stored_at=utc("2026-11-01T04:30:00Z"), **sunday)
    first, second = islice(planner.all(), 2)
    assert (first.due_at, first.merged) == (utc("2026-11-02T06:00:00Z"), 2)
    assert (second.due_at, second.merged) == (utc("2026-11-02T06:30:00Z"), 2)
    assert planner.merged(first, 100) == [utc("2026-11-01T05:00:00Z"), utc("2026-11-01T06:00:00Z")]


def test_a_day_that_was_skipped_entirely():
    """30 December 2011 does not exist in Apia; a rule may name it, and a calendar may close it."""
    named = {"rrule": "FREQ=YEARLY", "run_at": "2011-12-30T09:00:00", "timezone": APIA}
    friday = {"closed": {"2011-12-30": "a day that was not"}}
    # Saturday at 09:00 is the instant at which the skipped Friday happens: moved there, it does not move.
    found = next(planner_of(**named, calendar=friday, on_closed="next").all())
    assert (found.due_at, found.moved) == (utc("2011-12-30T19:00:00Z"), ())
    found = next(planner_of(**named, calendar=friday, on_closed="previous").all())
    assert (found.due_at, found.moved) == (utc("2011-12-29T19:00:00Z"), ("calendar",))
    found = next(planner_of(**named, calendar={"closed": {"2011-12-31": ""}}, on_closed="next").all())
    assert (found.due_at, found.moved) == (utc("2011-12-30T19:00:00Z"), ())  # the rule names the 30th
    onto = planner_of(rrule="FREQ=YEARLY", run_at="2011-12-29T09:00:00", timezone=APIA,
                      calendar={"closed": {"2011-12-29": ""}}, on_closed="next")  # fmt: skip
    assert next(onto.all()).due_at == utc("2011-12-30T19:00:00Z")


def test_at_most_31_days():
    yearly = {"rrule": "FREQ=YEARLY", "run_at": "2026-12-01T09:00:00", "on_closed": "next"}
    assert dues(planner_of(**yearly, calendar=closed("2026-12-01", 31)), 1) == [utc("2027-01-01T09:00:00Z")]
    planner = planner_of(**yearly, calendar=closed("2026-12-01", 32))
    assert dues(planner, 1) == [utc("2027-12-01T09:00:00Z")]
    passed = planner.skipped(utc("2026-01-01T00:00:00Z"), utc("2027-02-01T00:00:00Z"), 10)
    assert [(each.nominal_at, each.reason) for each in passed] == [(utc("2026-12-01T09:00:00Z"), "calendar")]
    yearly |= {"run_at": "2027-01-01T09:00:00", "on_closed": "previous"}
    assert dues(planner_of(**yearly, calendar=closed("2026-12-02", 31)), 1) == [utc("2026-12-01T09:00:00Z")]
    assert dues(planner_of(**yearly, calendar=closed("2026-12-01", 32)), 1) == [utc("2028-01-01T09:00:00Z")]


def test_a_month_without_an_open_day():
    fields = {"rrule": "FREQ=MONTHLY", "run_at": "2026-02-10T09:00:00", "on_closed": "next_in_month"}
    planner = planner_of(**fields, calendar=closed("2026-02-01", 28))
    assert dues(planner, 1) == [utc("2026-03-10T09:00:00Z")]


def test_open_wins_and_valid_until_ends_the_lists():
    calendar = {"weekend": ["SA"], "closed": {"2026-12-18": "", "2026-12-19": "", "2026-12-21": ""},
                "open": {"2026-12-18": "party", "2026-12-19": "bridge day", "2026-12-26": "late"},
                "valid_until": "2026-12-19"}  # fmt: skip
    planner = planner_of(rrule="FREQ=DAILY", run_at="2026-12-18T09:00:00", calendar=calendar)
    days = [due.day for due in dues(planner, 8)]
    assert days == [18, 19, 20, 21, 22, 23, 24, 25]  # the 21st counts no longer
    assert [due.day for due in dues(planner, 9)][8] == 27  # nor does the 26th, a Saturday


# Occurrences that come to the same instant


def test_the_one_that_was_not_moved_is_emitted():
    planner = planner_of(rrule="FREQ=DAILY", run_at="2026-12-24T09:00:00", calendar=CHRISTMAS, on_closed="next")
    monday = list(islice(planner.all(), 2))[1]
    assert (monday.nominal_at, monday.moved, monday.merged) == (utc("2026-12-28T09:00:00Z"), (), 3)
    assert planner.merged(monday, 2) == [utc("2026-12-26T09:00:00Z"), utc("2026-12-27T09:00:00Z")]


def test_or_else_the_earliest():
    planner = planner_of(rrule="FREQ=WEEKLY;BYDAY=SA,SU", run_at="2026-12-01T09:00:00", calendar=WEEKEND,
                         on_closed="next")  # fmt: skip
    found = next(planner.all())
    assert (found.nominal_at, found.due_at, found.merged) == (
        utc("2026-12-05T09:00:00Z"), utc("2026-12-07T09:00:00Z"), 1)


def test_previous_can_pass_earlier_occurrences():
    """Wednesday's is moved before Tuesday afternoon's: the order is that of due_at."""
    calendar = {"closed": {"2026-12-02": "", "2026-12-03": ""}}
    planner = planner_of(every="PT17H", run_at="2026-12-01T08:00:00Z", calendar=calendar, on_closed="previous")
    found = list(islice(planner.all(), 4))
    assert [each.due_at for each in found] == sorted(each.due_at for each in found)
    assert [each.nominal_at.isoformat()[5:16] for each in found] == [
        "12-02T01:00", "12-01T08:00", "12-03T11:00", "12-02T18:00"]


# The window

HOURS = {"from": "09:00", "to": "18:00"}


@pytest.mark.parametrize(
    ("wall", "due"),
    [
        ("2026-12-01T08:59:59", "2026-12-01T08:00:00Z"),
        ("2026-12-01T09:00:00", "2026-12-01T08:00:00Z"),  # from is inside
        ("2026-12-01T17:59:59", "2026-12-01T16:59:59Z"),
        ("2026-12-01T18:00:00", "2026-12-02T08:00:00Z"),  # to is not
    ],
)
def test_outside_the_window_it_waits_for_the_next_opening(wall, due):
    result = once(wall, BERLIN, window=HOURS)
    assert result.due_at == utc(due)
    assert result.moved == (() if result.nominal_at == result.due_at else ("window",))


@pytest.mark.parametrize(
    ("wall", "due"),
    [
        ("2026-12-04T23:00:00", "2026-12-04T23:00:00Z"),  # Friday
        ("2026-12-05T05:59:00", "2026-12-05T05:59:00Z"),  # Saturday morning: opened on Friday
        ("2026-12-05T06:00:00", "2026-12-11T22:00:00Z"),
        ("2026-12-04T05:00:00", "2026-12-04T22:00:00Z"),  # Thursday's does not open
    ],
)
def test_days_name_the_day_on_which_an_overnight_window_opens(wall, due):
    window = {"from": "22:00", "to": "06:00", "days": ["FR"]}
    assert once(wall, "UTC", window=window).due_at == utc(due)


def test_equal_times_are_24_hours():
    window = {"from": "09:00", "to": "09:00", "days": ["MO"]}
    assert once("2026-12-08T08:59:00", "UTC", window=window).moved == ()  # Tuesday morning
    assert once("2026-12-08T09:00:00", "UTC", window=window).due_at == utc("2026-12-14T09:00:00Z")


def test_the_next_opening_is_on_an_open_day():
    result = once("2026-12-24T20:00:00", "UTC", calendar=CHRISTMAS, window=HOURS)
    assert (result.due_at, result.moved) == (utc("2026-12-28T09:00:00Z"), ("window",))
    result = once("2026-12-25T20:00:00", "UTC", calendar=CHRISTMAS, on_closed="next", window=HOURS)
    assert (result.due_at, result.moved) == (utc("2026-12-29T09:00:00Z"), ("calendar", "window"))


def test_an_occurrence_inside_stays_whatever_day_the_window_opened_on():
    night = {"from": "22:00", "to": "06:00"}
    monday = once("2026-12-07T02:00:00", "UTC", calendar=WEEKEND, window=night)  # it opened on Sunday
    assert monday.moved == ()


def test_at_most_31_days_on():
    yearly = {"rrule": "FREQ=YEARLY", "run_at": "2026-12-01T20:00:00", "window": HOURS}
    planner = planner_of(**yearly, calendar=closed("2026-12-02", 30))
    assert dues(planner, 1) == [utc("2027-01-01T09:00:00Z")]  # the 31st day
    planner = planner_of(**yearly, calendar=closed("2026-12-02", 31))
    assert dues(planner, 1) == [utc("2027-12-02T09:00:00Z")]
    passed = planner.skipped(utc("2026-01-01T00:00:00Z"), utc("2027-03-01T00:00:00Z"), 5)
    assert [(each.nominal_at, each.reason) for each in passed] == [(utc("2026-12-01T20:00:00Z"), "calendar")]


def test_a_window_that_daylight_saving_leaves_empty_does_not_open():
    for window in ({"from": "02:00", "to": "03:00"}, {"from": "02:30", "to": "03:00"}):
        result = once("2026-03-08T01:00:00", window=window)
        opening = "2026-03-09T06:00:00Z" if window["from"] == "02:00" else "2026-03-09T06:30:00Z"
        assert result.due_at == utc(opening)
    # From and to are resolved like times of a rule: 02:10 to 02:50 happens from 03:10 to 03:50.
    skipped = {"from": "02:10", "to": "02:50"}
    assert once("2026-03-08T01:00:00", window=skipped).due_at == utc("2026-03-08T07:10:00Z")
    # In a fold both are in the first pass: the second is outside.
    repeated = {"from": "01:00", "to": "02:00"}
    assert once("2026-11-01T01:30:00-04:00", window=repeated).moved == ()
    assert once("2026-11-01T01:30:00-05:00", window=repeated).moved == ()  # 02:00 comes after the second pass
    repeated = {"from": "01:00", "to": "01:45"}
    assert once("2026-11-01T01:30:00-05:00", window=repeated).due_at == utc("2026-11-02T06:00:00Z")


def test_what_waits_for_an_opening_is_emitted_once():
    planner = planner_of(rrule="FREQ=HOURLY", run_at="2026-12-01T17:00:00Z", window=HOURS)
    first, second, third = islice(planner.all(), 3)
    assert first.due_at == utc("2026-12-01T17:00:00Z")
    assert (second.nominal_at, second.merged, second.moved) == (utc("2026-12-02T09:00:00Z"), 15, ())
    assert third.due_at == utc("2026-12-02T10:00:00Z")
    half = planner_of(rrule="FREQ=HOURLY", run_at="2026-12-01T17:30:00Z", window=HOURS)
    second = list(islice(half.all(), 2))[1]
    assert (second.nominal_at, second.due_at) == (utc("2026-12-01T18:30:00Z"), utc("2026-12-02T09:00:00Z"))
    assert second.merged == 14


# Jitter


def test_jitter_is_a_function_of_the_job_and_the_nominal_instant():
    fields = {"every": "PT1H", "run_at": "2026-12-01T09:00:00Z", "jitter": 300}
    one = list(islice(planner_of(job_id=JOB, **fields).all(), 50))
    again = list(islice(planner_of(job_id=JOB, **fields).after(utc("2026-12-02T09:30:00Z")), 20))
    assert again == [each for each in one if each.due_at > utc("2026-12-02T09:30:00Z")][:20]
    other = list(islice(planner_of(job_id=UUID(int=1), **fields).all(), 50))
    assert [each.due_at for each in one] != [each.due_at for each in other]
    delays = [(each.due_at - each.nominal_at).total_seconds() for each in one]
    assert all(0 <= delay < 300 for delay in delays)
    assert len(set(delays)) == 50
    assert {each.moved for each in one} == {("jitter",)}


def test_jitter_is_uniform():
    fields = {"every": "PT1H", "run_at": "2026-12-01T09:00:00Z", "jitter": 100}
    found = islice(planner_of(job_id=JOB, **fields).all(), 5000)
    tenths = [0] * 10
    for each in found:
        tenths[int((each.due_at - each.nominal_at).total_seconds() // 10)] += 1
    assert all(400 < number < 600 for number in tenths)


def test_jitter_never_reaches_the_end_of_the_window():
    fields = {"rrule": "FREQ=DAILY", "run_at": "2026-12-01T17:59:50Z", "jitter": 86_400, "window": HOURS}
    for each in islice(planner_of(job_id=JOB, **fields).all(), 200):
        assert each.nominal_at <= each.due_at < each.nominal_at + timedelta(seconds=10)


def test_jitter_does_not_look_at_the_calendar():
    fields = {"rrule": "FREQ=WEEKLY", "run_at": "2026-12-04T23:59:59Z", "jitter": 3600, "calendar": WEEKEND}
    first = next(planner_of(job_id=JOB, **fields).all())
    assert first.due_at.day == 5  # a Saturday


def test_occurrences_come_in_the_order_of_due_at_however_long_the_jitter():
    fields = {"every": "PT1M", "run_at": "2026-12-01T09:00:00Z", "jitter": 7200}
    planner = planner_of(job_id=JOB, **fields)
    found = list(islice(planner.all(), 500))
    assert found == sorted(found, key=lambda each: (each.due_at, each.nominal_at))
    nominals = [each.nominal_at for each in islice(planner.all(), 2000)]
    assert nominals != sorted(nominals)
    assert len(set(nominals)) == 2000
    assert set(nominals) >= {utc("2026-12-01T09:00:00Z") + timedelta(minutes=number) for number in range(1700)}
    for each in found[::100]:
        assert next(planner.after(each.due_at)) == found[found.index(each) + 1]


def test_without_an_id_nothing_is_delayed():
    fields = {"every": "PT1H", "run_at": "2026-12-01T09:00:00Z", "jitter": 300}
    assert next(planner_of(**fields).all()).moved == ()


# Problems by field


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({"on_closed": "next"}, {"on_closed": "needs a calendar"}),
        ({"on_closed": "skip"}, {"on_closed": "needs a calendar"}),
        ({"calendar": WEEKEND, "on_closed": "later"}, {"on_closed": "must be one of skip, next, previous"}),
        ({"calendar": 5}, {"calendar": "must be the name"}),
        ({"calendar": "de"}, {"calendar": "cannot be looked up"}),
        ({"calendar": "no spaces"}, {"calendar": "a name has 1 to 100 characters"}),
        ({"calendar": {"weekend": ["Sat"]}}, {"calendar.weekend": "must be a list of weekdays"}),
        ({"calendar": {"weekend": "SA"}}, {"calendar.weekend": "must be a list of weekdays"}),
        ({"calendar": {"weekends": []}}, {"calendar.weekends": "is not a field of a calendar"}),
        ({"calendar": {"closed": ["2026-12-25"]}}, {"calendar.closed": "must be an object"}),
        ({"calendar": {"closed": {"25.12.2026": ""}}}, {"calendar.closed": "takes dates such as"}),
        ({"calendar": {"closed": {"20261225": ""}}}, {"calendar.closed": "takes dates such as"}),
        ({"calendar": {"open": {"2026-02-30": ""}}}, {"calendar.open": "does not exist"}),
        ({"calendar": {"closed": {"2026-12-25": None}}}, {"calendar.closed": "the name must be a string"}),
        ({"calendar": {"closed": {"2026-12-25": "x" * 201}}}, {"calendar.closed": "at most 200 characters"}),
        ({"calendar": closed("2026-01-01", 10_001)}, {"calendar.closed": "at most 10,000 dates"}),
        ({"calendar": {"valid_until": "soon"}}, {"calendar.valid_until": "takes dates such as"}),
        ({"window": "09:00-18:00"}, {"window": "must be an object"}),
        ({"window": {}}, {"window.from": "is required", "window.to": "is required"}),
        ({"window": {"from": "9:00", "to": "24:00"}}, {"window.from": "HH:MM", "window.to": "HH:MM"}),
        ({"window": HOURS | {"day": ["MO"]}}, {"window.day": "is not a field of a window"}),
        ({"window": HOURS | {"days": []}}, {"window.days": "at least one weekday"}),
        ({"window": HOURS | {"days": ["MONDAY"]}}, {"window.days": "must be a list of weekdays"}),
        ({"jitter": -1}, {"jitter": "from 0 to 86,400"}),
        ({"jitter": 86_401}, {"jitter": "from 0 to 86,400"}),
        ({"jitter": True}, {"jitter": "from 0 to 86,400"}),
        ({"jitter": "300"}, {"jitter": "from 0 to 86,400"}),
        ({"jitter": float("nan")}, {"jitter": "from 0 to 86,400"}),
        ({"calendar": {"weekend": WEEK}}, {"calendar": "no occurrence would be emitted"}),
    ],
)
def test_fields_that_are_wrong(fields, problems):
    problem_texts = problems_of(rrule="FREQ=DAILY", run_at="2026-12-01T09:00:00Z", **fields)
    assert set(problem_texts) == set(problems)
    for field, problem in problems.items():
        assert problem in problem_texts[field]


def test_absent_fields_are_no_adjustments():
    assert read_adjustments({}) is None
    assert read_adjustments(dict.fromkeys(ADJUSTMENTS)) is None


def test_none_would_be_emitted():
    saturdays = {"rrule": "FREQ=WEEKLY;BYDAY=SA", "run_at": "2026-12-01T09:00:00Z", "calendar": WEEKEND}
    assert set(problems_of(**saturdays)) == {"calendar"}
    assert dues(planner_of(**saturdays, on_closed="next"), 1) == [utc("2026-12-07T09:00:00Z")]
    assert set(problems_of(run_at="2026-12-25T09:00:00Z", calendar=CHRISTMAS)) == {"calendar"}
    ending = {"rrule": "FREQ=DAILY;COUNT=2", "run_at": "2026-12-26T09:00:00Z", "calendar": WEEKEND}
    assert set(problems_of(**ending)) == {"calendar"}
    opened = {"rrule": "FREQ=SECONDLY", "run_at": "2026-12-26T09:00:00Z"}
    once_open = {"weekend": WEEK, "open": {"2090-01-02": "at last"}}
    assert dues(planner_of(**opened, calendar=once_open), 1) == [utc("2090-01-02T00:00:00Z")]
    never = {"weekend": WEEK, "open": {"2190-01-02": "too late"}}
    assert set(problems_of(**opened, calendar=never)) == {"calendar"}


def test_too_many_occurrences_within_one_jitter():
    start = {"run_at": "2026-12-01T09:00:00Z"}
    assert set(problems_of(rrule="FREQ=SECONDLY", jitter=3700, **start)) == {"jitter"}
    assert set(problems_of(every=0.1, jitter=400, **start)) == {"jitter"}
    assert set(problems_of(rrule="FREQ=SECONDLY;BYMONTH=6", jitter=86_400, **start)) == {"jitter"}
    assert planner_of(rrule="FREQ=MINUTELY", jitter=86_400, **start)
    assert planner_of(rrule="FREQ=SECONDLY", jitter=3600, **start)


def test_occurrence_counts_and_exclusions_are_those_of_the_nominal_schedule():
    rule = "FREQ=DAILY;COUNT=5\nEXDATE:20261227T090000Z\nRDATE:20270102T110000Z"
    planner = planner_of(rrule=rule, run_at="2026-12-24T09:00:00Z", calendar=CHRISTMAS, on_closed="next")
    found = [(each.due_at.isoformat()[5:13], each.merged) for each in planner.all()]
    assert found == [("12-24T09", 0), ("12-28T09", 2), ("01-04T11", 0)]


# Inputs that are meant to hurt

START = {"run_at": "2026-03-27T00:00:00", "timezone": BERLIN}
DENSE = {
    "every second": {"rrule": "FREQ=SECONDLY"} | START,
    "every tenth": {"every": 0.1} | START,
    "seconds of Saturdays": {"rrule": "FREQ=SECONDLY;BYDAY=SA"} | START,
    "seconds at two": {"rrule": "FREQ=SECONDLY;BYHOUR=2"} | START,
}


def far_apart(step):
    """Return a calendar with 10,000 open days."""
    days = (date(2026, 3, 1) + timedelta(days=step * number) for number in range(10_000))
    return {"weekend": WEEK, "open": {day.isoformat(): "" for day in days}}


CALENDARS = {
    "all closed": {"weekend": WEEK},
    "Mondays": {"weekend": WEEK[1:]},
    "weekend": WEEKEND,
    "10,000 closed": closed("2026-03-01", 10_000),
    "every other": far_apart(2),
    "31 days apart": far_apart(31),
    "64 days apart": far_apart(64),
}
WINDOWS = [
    None,
    HOURS,
    {"from": "09:00", "to": "09:01", "days": ["TU"]},
    {"from": "22:00", "to": "02:30", "days": ["TU"]},
    {"from": "02:00", "to": "03:00", "days": ["SU"]},
]


@pytest.mark.parametrize("calendar", CALENDARS)
@pytest.mark.parametrize("schedule", DENSE)
def test_hostile_combinations_are_decided_in_bounded_time(schedule, calendar):
    """CPU time, independent of other processes; the slowest case needs a tenth of the limit."""
    spec = spec_of(**DENSE[schedule])
    for on_closed in ("skip", "previous", "nearest"):
        for window in WINDOWS:
            started = time.process_time()
            fields = {"calendar": CALENDARS[calendar], "on_closed": on_closed, "window": window}
            planner = Planner(spec, read_adjustments(fields))
            found = list(islice(planner.all(), 5))
            assert planner.emits() is bool(found)
            until = found[-1].due_at if found else utc("2060-01-01T00:00:00Z")
            planner.skipped(spec.starts_at - timedelta(seconds=1), until, 100)
            for each in found:
                planner.merged(each, 100)
            assert time.process_time() - started < 10


def test_both_ends_of_time():
    for wall in ("0001-01-01T00:00:00Z", "0001-01-02T12:00:00Z", "9999-12-31T23:59:58Z", "9999-12-30T23:00:00Z"):
        for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
            for fields in ({"calendar": WEEKEND, "on_closed": "next_in_month"}, {"window": HOURS}, {"jitter": 60},
                           {"calendar": WEEKEND, "on_closed": "nearest", "window": HOURS, "jitter": 60}):
                spec = spec_of(run_at=wall, timezone=zone)
                planner = Planner(spec, read_adjustments(fields), JOB)
                assert len(list(planner.all())) <= 1
                planner.skipped(datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), 5)


@pytest.mark.parametrize("on_closed", ["previous", "next"])
def test_the_settled_occurrences_of_a_frequent_job_cost_little_work(on_closed):
    """A day with hundreds of settled spans is searched from the instant in question on, not from its start."""
    friday, second = utc("2026-12-18T00:00:00Z"), timedelta(seconds=1)
    planner = planner_of(every=1, run_at="2026-12-14T00:00:00Z", calendar=WEEKEND, on_closed=on_closed, jitter=20,
                         job_id=JOB)  # fmt: skip
    ranges = [(friday + number * 60 * second, friday + (number * 60 + 30) * second) for number in range(1000)]
    planner.limit(ranges)
    next(planner.after(friday))
    with CallCount() as calls:
        found = list(islice(planner.after(friday + timedelta(hours=10)), 5))
    assert all(any(first <= each.nominal_at < end for first, end in ranges) for each in found)
    assert calls.count < 20_000
