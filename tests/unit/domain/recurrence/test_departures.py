"""Where we leave dateutil because RFC 5545 says otherwise; docs/decisions/0001-recurrence-engine.md lists them."""

from datetime import date, datetime

import dateutil.rrule
import pytest
from recurrence_helpers import schedule_of, spec_of, take, utc

from scheduler.domain.errors import Rejected


def days_of(rrule, run_at, number, **fields):
    """Return the dates of the first occurrences in UTC."""
    return [f"{instant:%Y-%m-%d}" for instant in take(schedule_of(rrule=rrule, run_at=run_at, **fields), number)]


def theirs(text, dtstart, number):
    """Return dateutil's dates."""
    walls = dateutil.rrule.rrulestr(text, dtstart=datetime.fromisoformat(dtstart))
    return [f"{wall:%Y-%m-%d}" for wall, _ in zip(walls, range(number), strict=False)]


def test_byday_with_and_without_numbers_is_a_union():
    text, start = "FREQ=MONTHLY;BYDAY=MO,1TU", "2026-09-01T09:00:00"
    wanted = ["2026-09-01", "2026-09-07", "2026-09-14", "2026-09-21", "2026-09-28", "2026-10-05", "2026-10-06"]
    assert days_of(text, start, 7) == wanted
    assert theirs(text, start, 7) != wanted


def test_until_as_a_date_includes_that_day():
    text, start = "FREQ=DAILY;UNTIL=20260916", "2026-09-14T09:00:00"
    assert days_of(text, start, 9) == ["2026-09-14", "2026-09-15", "2026-09-16"]
    assert theirs(text, start, 9) == ["2026-09-14", "2026-09-15"]


def test_until_as_a_date_is_a_local_day():
    fields = {
        "rrule": "FREQ=HOURLY;UNTIL=20260914",
        "run_at": "2026-09-14T22:00:00",
        "timezone": "America/New_York",
    }
    assert take(schedule_of(**fields), 9) == [utc("2026-09-15T02:00:00Z"), utc("2026-09-15T03:00:00Z")]


def test_bysetpos_chooses_from_the_whole_first_week():
    """DTSTART is a Thursday: the first of MO,FR in its week is Monday, which is past."""
    text, start = "FREQ=WEEKLY;BYDAY=MO,FR;BYSETPOS=1", "2026-09-17T09:00:00"
    assert days_of(text, start, 2) == ["2026-09-21", "2026-09-28"]
    assert theirs(text, start, 2) == ["2026-09-18", "2026-09-21"]


def test_week_53_that_reaches_into_january():
    text, start = "FREQ=YEARLY;BYWEEKNO=53;BYDAY=SA,SU", "2020-01-01T09:00:00"
    wanted = ["2021-01-02", "2021-01-03", "2027-01-02", "2027-01-03"]
    assert days_of(text, start, 4) == wanted
    assert date(2021, 1, 2).isocalendar().week == 53
    assert theirs(text, start, 4)[2:] == ["2022-01-01", "2022-01-02"]  # in week 52


def test_a_week_without_a_weekday_is_one_day():
    """DTSTART is a Tuesday: RFC 5545 takes from it what the rule leaves open."""
    text, start = "FREQ=YEARLY;BYWEEKNO=20", "1997-09-02T09:00:00"
    wanted = ["1998-05-12", "1999-05-18", "2000-05-16"]
    assert days_of(text, start, 3) == theirs(f"{text};BYDAY=TU", start, 3) == wanted
    assert theirs(text, start, 3) == ["1998-05-11", "1998-05-12", "1998-05-13"]


def test_count_counts_instants_not_wall_times():
    """02:15 and 03:15 are one instant on 8 March: dateutil's COUNT would spend two on it."""
    fields = {
        "rrule": "FREQ=DAILY;BYHOUR=2,3;COUNT=4",
        "run_at": "2026-03-07T02:15:00",
        "timezone": "America/New_York",
    }
    taken = take(schedule_of(**fields), 9)
    assert taken == [utc(f"2026-03-{time}:15:00Z") for time in ("07T07", "07T08", "08T07", "09T06")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY cannot be used with FREQ=WEEKLY"),
        ("FREQ=DAILY;BYWEEKNO=3", "BYWEEKNO needs FREQ=YEARLY"),
        ("FREQ=DAILY;BYDAY=1MO", "BYDAY with a number needs"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20270101T000000Z", "COUNT and UNTIL exclude each other"),
        ("FREQ=DAILY;FREQ=WEEKLY", "FREQ is given twice"),
    ],
)
def test_what_rfc_5545_forbids_is_refused(text, reason):
    dateutil.rrule.rrulestr("FREQ=DAILY")  # dateutil takes all of these, the last two with a warning at most
    with pytest.raises(Rejected, match=reason):
        spec_of(rrule=text)
