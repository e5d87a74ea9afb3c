"""BYWEEKNO: which days a week has, and which of them a rule means that names none."""

from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import WEEKDAYS, rules, starts, with_weekday
from recurrence_helpers import schedule_of, spec_of, steady, take, utc

from scheduler.domain.errors import Rejected
from scheduler.domain.recurrence import compile_schedule
from scheduler.domain.recurrence.day_masks import january_first, weekno_mask

TUESDAY = "1997-09-02T09:00:00"
THURSDAY = "2026-09-17T09:00:00"
FRIDAY = "2026-09-18T09:00:00"
SUNDAY = "2026-09-13T09:00:00"


def numbers_of(day, wkst):
    """Return both numbers of a day's week: it belongs to the year that has at least four of its days."""
    middle = day - timedelta(days=(day.weekday() - wkst) % 7 - 3)
    week = (middle - date(middle.year, 1, 1)).days // 7 + 1
    weeks = 53 if (middle + timedelta(days=7 * (53 - week))).year == middle.year else 52
    return week, week - weeks - 1


def days_of(rrule, run_at, number=3, **fields):
    """Return the dates of the first occurrences in UTC."""
    return [f"{instant:%Y-%m-%d}" for instant in take(schedule_of(rrule=rrule, run_at=run_at, **fields), number)]


@given(year=st.integers(1900, 2400), wkst=st.integers(0, 6), number=st.integers(1, 53), negative=st.booleans())
@steady
def test_week_numbers_by_their_definition(year, wkst, number, negative):
    chosen = -number if negative else number
    mask, start = weekno_mask(year, (january_first(year) - 1) % 7, wkst, (chosen,)), date(year, 1, 1)
    for offset in range((date(year + 1, 1, 1) - start).days):
        day = start + timedelta(days=offset)
        assert bool(mask >> offset & 1) == (chosen in numbers_of(day, wkst)), day
        if wkst == WEEKDAYS.index("MO"):
            assert numbers_of(day, wkst)[0] == day.isocalendar().week


@given(
    start=st.dates(date(1900, 1, 1), date(2400, 1, 1)),
    wkst=st.integers(0, 6),
    chosen=st.lists(st.integers(1, 53) | st.integers(-53, -1), min_size=1, max_size=3, unique=True),
)
@steady
def test_the_day_is_the_weekday_of_dtstart(start, wkst, chosen):
    text = f"FREQ=YEARLY;BYWEEKNO={','.join(map(str, chosen))};WKST={WEEKDAYS[wkst]}"
    taken = take(schedule_of(rrule=text, run_at=f"{start}T09:00"), 9)
    day, end, wanted = start, taken[-1].date(), []
    while day <= end:
        if not {*chosen}.isdisjoint(numbers_of(day, wkst)):
            wanted.append(day)
        day += timedelta(days=7)
    assert [instant.date() for instant in taken] == wanted


def _answers(text, zone, wall):
    """Return all that a rule says: its stored end, its first runs and its number of runs, or why it is refused."""
    try:
        spec = spec_of(rrule=text, run_at=wall.isoformat(), timezone=zone)
    except Rejected as rejected:
        return str(rejected)[:30]  # the rest names the parts as they are written
    schedule = compile_schedule(spec)
    later = spec.starts_at + timedelta(days=99_999)
    return spec.ends_at, take(schedule, 40), schedule.count(spec.starts_at, later)


@given(
    rule=rules(weeks=53),
    start=starts(),
    end=st.just("") | st.integers(1, 60).map(";COUNT={}".format) | st.dates().map(";UNTIL={:%4Y%m%d}".format),
)
@steady
def test_the_weekday_may_as_well_be_written_out(rule, start, end):
    (_, text), (zone, wall) = rule, start
    assert _answers(text + end, zone, wall) == _answers(with_weekday(text, wall) + end, zone, wall)


@pytest.mark.parametrize(
    ("text", "start", "wanted"),
    [
        ("BYWEEKNO=1,2", "2013-01-08T09:00:00", ["2013-01-08", "2013-12-31", "2014-01-07", "2014-12-30"]),
        ("BYWEEKNO=1", "2018-01-01T09:00:00", ["2018-01-01", "2018-12-31", "2019-12-30", "2021-01-04"]),
        ("BYWEEKNO=1;WKST=SU", "2018-01-01T09:00:00", ["2018-01-01", "2018-12-31", "2019-12-30", "2021-01-04"]),
        ("BYWEEKNO=1;WKST=SU", "2017-12-31T09:00:00", ["2017-12-31", "2018-12-30", "2019-12-29", "2021-01-03"]),
        ("BYWEEKNO=53", SUNDAY, ["2027-01-03", "2033-01-02", "2038-01-03"]),
        ("BYWEEKNO=-1", TUESDAY, ["1997-12-23", "1998-12-29", "1999-12-28"]),
        ("BYWEEKNO=-53", THURSDAY, ["2032-01-01", "2037-01-01", "2043-01-01"]),
        ("BYWEEKNO=20,21;BYMONTH=5", TUESDAY, ["1998-05-12", "1998-05-19", "1999-05-18", "1999-05-25"]),
        ("BYWEEKNO=53;BYMONTH=1", FRIDAY, ["2027-01-01", "2038-01-01", "2044-01-01"]),
        ("BYWEEKNO=20;INTERVAL=2", TUESDAY, ["1999-05-18", "2001-05-15", "2003-05-13"]),
        ("BYWEEKNO=20,30,40;BYSETPOS=-1", TUESDAY, ["1997-09-30", "1998-09-29", "1999-10-05"]),
        ("BYWEEKNO=20;BYHOUR=6,18", TUESDAY, ["1998-05-12", "1998-05-12", "1999-05-18"]),
        ("BYWEEKNO=20;UNTIL=19990518", TUESDAY, ["1998-05-12", "1999-05-18"]),
        ("BYWEEKNO=20;COUNT=2", TUESDAY, ["1998-05-12", "1999-05-18"]),
    ],
)
def test_weeks_without_a_weekday(text, start, wanted):
    ends = "UNTIL" in text or "COUNT" in text
    assert days_of(f"FREQ=YEARLY;{text}", start, len(wanted) + ends) == wanted


def test_days_that_the_rule_does_name_are_found_in_the_whole_week():
    by_month, by_year = "FREQ=YEARLY;BYWEEKNO=20;BYMONTHDAY=15,16", "FREQ=YEARLY;BYWEEKNO=20;BYYEARDAY=135"
    assert days_of(by_month, TUESDAY) == ["1998-05-15", "1998-05-16", "2000-05-15"]
    assert days_of(by_year, TUESDAY) == ["1998-05-15", "2001-05-15", "2002-05-15"]


def test_the_weekday_is_that_of_the_wall_clock():
    text, berlin = "FREQ=YEARLY;BYWEEKNO=20", "Europe/Berlin"
    late = "2026-09-13T23:30:00Z"  # a Monday in Berlin
    assert days_of(text, late, 1) == ["2027-05-23"]
    assert days_of(text, late, 1, timezone=berlin) == ["2027-05-16"]
    assert take(schedule_of(rrule=text, run_at=late, timezone=berlin), 1) == [utc("2027-05-16T23:30:00Z")]


def test_without_run_at_the_weekday_is_that_of_the_storing_moment():
    fields = {"rrule": "FREQ=YEARLY;BYWEEKNO=20", "timezone": "Europe/Berlin"}
    spec = spec_of(**fields, stored_at=utc("2026-09-13T21:59:59.5Z"))  # Monday begins with the next whole second
    assert spec.dtstart == datetime(2026, 9, 14)  # noqa: DTZ001 - wall time
    monday = take(compile_schedule(spec), 2)
    assert monday == [utc("2027-05-16T22:00:00Z"), utc("2028-05-14T22:00:00Z")]
    # The text is remembered, the start is not: another job with it does not change this one.
    sunday = schedule_of(**fields, stored_at=utc("2026-09-13T21:59:59Z"))
    assert take(sunday, 1) == [utc("2027-05-23T21:59:59Z")]
    assert take(compile_schedule(spec), 2) == monday


def test_count_is_stored_as_the_last_run():
    spec = spec_of(rrule="FREQ=YEARLY;BYWEEKNO=20,-1;COUNT=40", run_at=TUESDAY)
    assert spec.ends_at == utc("2017-05-16T09:00:00Z")
    assert len(take(compile_schedule(spec), 99)) == 40


@pytest.mark.parametrize(
    ("text", "start", "reason"),
    [
        ("BYWEEKNO=53;BYMONTH=6", TUESDAY, "no day matches BYMONTH=6 and BYWEEKNO=53 together"),
        (
            "BYWEEKNO=53;BYMONTH=1",
            THURSDAY,
            "no day matches BYMONTH=1 and BYWEEKNO=53 and BYDAY=TH together; BYDAY comes from DTSTART",
        ),
        (
            "BYWEEKNO=1;BYMONTH=12",
            SUNDAY,
            "no day matches BYMONTH=12 and BYWEEKNO=1 and BYDAY=SU together; BYDAY comes from DTSTART",
        ),
        ("BYWEEKNO=20;BYSETPOS=2", TUESDAY, "no period of this rule has as many runs as BYSETPOS asks for"),
        ("BYMONTH=2", "2026-01-30T09:00:00", "February has no day 30; BYMONTHDAY comes from DTSTART"),
    ],
)
def test_what_dtstart_adds_may_leave_nothing(text, start, reason):
    with pytest.raises(Rejected) as verdict:
        spec_of(rrule=f"FREQ=YEARLY;{text}", run_at=start)
    assert [problem.problem for problem in verdict.value.problems] == [f"never fires: {reason}"]
