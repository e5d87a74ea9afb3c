"""Schedule fields of a request: valid values, and problems of invalid ones."""
# ruff: noqa: PT017 - a refusal is one of the two right answers here, and its words are checked

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recurrence_helpers import STORED_AT, schedule_of, spec_of, steady, take, utc

from scheduler.domain.errors import Rejected
from scheduler.domain.recurrence import compile_schedule, resolve, tzdata_version, zone, zone_names

NEW_YORK = "America/New_York"
RULE = "RRULE:FREQ=DAILY;COUNT=3"


def problems_of(**fields):
    """Return the problems by field."""
    with pytest.raises(Rejected) as verdict:
        spec_of(**fields)
    return {problem.field: problem.problem for problem in verdict.value.problems}


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-12-01T09:00:00Z", "2026-12-01T09:00:00Z"),
        ("2026-12-01t09:00:00z", "2026-12-01T09:00:00Z"),
        ("2026-12-01 09:00:00+01:00", "2026-12-01T08:00:00Z"),
        ("2026-12-01T09:00:00.25-05:00", "2026-12-01T14:00:00.250000Z"),
        ("2026-12-01T09:00:00.123456789Z", "2026-12-01T09:00:00.123456Z"),
        ("2026-12-01T09:00", "2026-12-01T14:00:00Z"),
        ("2026-03-08T02:30:00", "2026-03-08T07:30:00Z"),
        ("2026-11-01T01:30:00", "2026-11-01T05:30:00Z"),
        ("2026-11-01T01:30:00-05:00", "2026-11-01T06:30:00Z"),
    ],
)
def test_run_at(text, instant):
    spec = spec_of(run_at=text, timezone=NEW_YORK)
    assert spec.starts_at == utc(instant)
    assert take(compile_schedule(spec), 2) == [utc(instant)]


@pytest.mark.parametrize("rule", [{"cron": "30 2 * * *"}, {"rrule": "FREQ=DAILY"}])
def test_a_start_whose_wall_time_lies_before_the_year_1_is_refused(rule):
    problems = problems_of(run_at="0001-01-01T00:00:00Z", timezone="Etc/GMT+12", **rule)
    assert problems == {"run_at": "the start is outside the years 1 to 9999"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-02-30T09:00:00Z",
        "2026-12-01",
        "2026-12-01T24:00:00Z",
        "2026-12-01T09:00:00+25:00",
        "2026-12-01T09:00:60Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-05:00",
        "\u0662026-12-01T09:00:00Z",
        "0000-12-01T09:00:00Z",
        "12026-12-01T09:00:00Z",
        "2026-12-01T09:00:00Z\n",
    ],
)
def test_run_at_that_is_no_moment(text):
    assert set(problems_of(run_at=text)) == {"run_at"}


VANCOUVER = "America/Vancouver"


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2027-03-01T09:00:00-07:00[America/Vancouver]", "2027-03-01T16:00:00Z"),
        ("2027-03-01T09:00:00-07:00[!America/Vancouver]", "2027-03-01T16:00:00Z"),
        ("2027-03-01T09:00:00[America/Vancouver]", "2027-03-01T16:00:00Z"),
        ("2027-03-01T09:00:00Z[America/Vancouver]", "2027-03-01T09:00:00Z"),
        ("2027-03-01T09:00:00-07:00[America/Vancouver][u-ca=gregory]", "2027-03-01T16:00:00Z"),
        ("2027-03-01T09:00:00.5-07:00[America/Vancouver]", "2027-03-01T16:00:00.500000Z"),
    ],
)
def test_run_at_with_a_zone_in_a_suffix(text, instant):
    for timezone in (None, VANCOUVER):
        spec = spec_of(run_at=text, timezone=timezone)
        assert (spec.starts_at, spec.timezone) == (utc(instant), VANCOUVER)
    assert spec_of(run_at=text, rrule="FREQ=DAILY").timezone == VANCOUVER


def test_a_suffix_chooses_the_pass_of_a_repeated_time_by_the_offset():
    first, second = (spec_of(run_at=f"2026-11-01T01:30:00{offset}[{NEW_YORK}]") for offset in ("-04:00", "-05:00"))
    assert (first.starts_at, second.starts_at) == (utc("2026-11-01T05:30:00Z"), utc("2026-11-01T06:30:00Z"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2027-03-01T09:00:00-05:00[America/Vancouver]", "which has -07:00"),
        ("2026-07-01T09:00:00+00:00[Europe/London]", "which has +01:00"),
        ("2026-03-08T02:30:00-05:00[America/New_York]", "which has -04:00"),  # no such time: in a gap
        ("2027-03-01T09:00:00-07:00[America/Vancuver]", "did you mean America/Vancouver?"),
        ("2027-03-01T09:00:00+01:00[+01:00]", "is not the name of a time zone"),
        ("2027-03-01T09:00:00Z[!u-ca=hebrew]", "is not supported"),
        ("2027-03-01T09:00:00Z[Europe/Paris][Europe/Berlin]", "give one zone"),
        ("2027-03-01T09:00:00Z[]", "write RFC 3339"),
        ("2027-03-01T09:00:00Z[Europe/Paris", "write RFC 3339"),
        ("2027-03-01T09:00:00Z" + "[a=b]" * 100_000, "write RFC 3339"),
    ],
)
def test_suffixes_that_contradict_or_are_unknown(text, reason):
    problems = problems_of(run_at=text)
    assert set(problems) == {"run_at"}
    assert reason in problems["run_at"]


def test_a_suffix_and_another_zone():
    problems = problems_of(run_at="2027-03-01T09:00:00-07:00[America/Vancouver]", timezone="America/Phoenix")
    assert problems == {"timezone": "run_at says America/Vancouver: remove timezone or give the same"}
    problems = problems_of(
        run_at="2026-12-01T09:00:00+01:00[Europe/Berlin]",
        rrule="DTSTART;TZID=Europe/Paris:20261201T090000\nRRULE:FREQ=DAILY",
    )
    assert set(problems) == {"timezone"}


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ("PT15M", timedelta(minutes=15)),
        ("P1D", timedelta(days=1)),
        ("P1W", timedelta(weeks=1)),
        ("p1dt2h", timedelta(hours=26)),
        ("PT1.5H", timedelta(minutes=90)),
        ("PT0,5M", timedelta(seconds=30)),
        ("PT90.000001S", timedelta(seconds=90, microseconds=1)),
        (60, timedelta(minutes=1)),
        (1.5, timedelta(seconds=1.5)),
        ("3600", timedelta(hours=1)),
        ("P36525D", timedelta(days=36525)),
    ],
)
def test_every(value, length):
    spec = spec_of(every=value, run_at="2026-12-01T09:00:00Z", timezone=NEW_YORK)
    assert spec.every == length
    taken = take(compile_schedule(spec), 3)
    assert taken == [utc("2026-12-01T09:00:00Z") + length * turn for turn in range(3)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("P1M", "no fixed length"),
        ("P1Y2D", "no fixed length"),
        ("PT0S", "at least 0.1 seconds"),
        (0, "at least 0.1 seconds"),
        (-5, "at least"),
        (0.05, "at least"),
        (float("nan"), "at least"),
        (float("inf"), "at least"),
        (10**400, "at least"),
        ("PT", "ISO 8601"),
        ("P", "ISO 8601"),
        ("P1DT", "ISO 8601"),
        ("15M", "ISO 8601"),
        ("PT1.2.3S", "not a number"),
        ("P36526D", "at most 100 years"),
        ("1" * 500, "ISO 8601"),
        ("PT\u0661S", "ISO 8601"),
        ("", "ISO 8601"),
        ("-PT5M", "ISO"),
    ],
)
def test_every_that_is_no_spacing(value, reason):
    assert reason in problems_of(every=value)["every"]


def test_every_is_elapsed_time_whatever_the_clocks_do():
    taken = take(schedule_of(every="P1D", run_at="2026-03-07T09:00:00", timezone=NEW_YORK), 3)
    assert taken == [utc(f"2026-03-{day}T14:00:00Z") for day in ("07", "08", "09")]


def test_every_counts_and_ends_with_time_itself():
    schedule = schedule_of(every=60, run_at="2026-01-01T00:00:00Z")
    assert schedule.count(utc("2025-01-01T00:00:00Z"), utc("2026-01-01T00:10:00Z")) == 11
    assert schedule.newest(utc("2026-09-01T00:00:30Z"), 2, utc("2026-01-01T00:00:00Z"))[-1] == utc(
        "2026-09-01T00:00:00Z"
    )
    assert schedule.next_after(datetime(9999, 12, 31, 23, 59, 30, tzinfo=UTC)) is None


def test_without_run_at_a_schedule_starts_when_it_is_stored():
    stored_at = utc("2026-09-14T13:00:00.250000Z")
    assert schedule_of(every="PT1M", stored_at=stored_at).first() == stored_at
    assert schedule_of(rrule="FREQ=HOURLY", stored_at=stored_at).first() == utc("2026-09-14T13:00:01Z")
    assert schedule_of(cron="* * * * *", stored_at=stored_at).first() == utc("2026-09-14T13:01:00Z")
    assert "run_at" in problems_of()


def test_a_rule_keeps_the_fraction_of_run_at():
    fields = {"rrule": "FREQ=DAILY;COUNT=2\nEXDATE:20261202T090000Z\nRDATE:20261203T120000Z"}
    taken = take(schedule_of(run_at="2026-12-01T09:00:00.500000Z", **fields), 9)
    assert taken == [utc("2026-12-01T09:00:00.500000Z"), utc("2026-12-03T12:00:00.500000Z")]


def test_dtstart_is_an_occurrence_only_if_the_rule_matches_it():
    schedule = schedule_of(rrule="FREQ=WEEKLY;BYDAY=TU", run_at="2026-09-14T09:00:00Z")  # a Monday
    assert schedule.first() == utc("2026-09-15T09:00:00Z")


def test_run_at_in_the_second_pass_waits_for_the_next_occurrence():
    schedule = schedule_of(rrule="FREQ=DAILY", run_at="2026-11-01T01:30:00-05:00", timezone=NEW_YORK)
    assert schedule.first() == utc("2026-11-02T06:30:00Z")


@pytest.mark.parametrize(
    ("lines", "days"),
    [
        ("RDATE:20261205T090000Z", ["01", "02", "03", "05"]),
        (
            "RDATE;VALUE=DATE-TIME;TZID=Europe/Berlin:20261205T100000,20261206T100000",
            ["01", "02", "03", "05", "06"],
        ),
        ("RDATE;VALUE=DATE:20261205", ["01", "02", "03", "05"]),
        ("RDATE:20261101T090000Z,20261202T090000Z", ["01", "02", "03"]),
        ("EXDATE:20261202T090000", ["01", "03"]),
        ("exdate;tzid=Europe/Berlin:20261202T100000", ["01", "03"]),
        ("EXDATE;VALUE=DATE:20261201,20261203", ["02"]),
        ("EXDATE:20261202T090001Z", ["01", "02", "03"]),
        ("RDATE:20261205T090000Z\nEXDATE:20261205T090000Z", ["01", "02", "03"]),
        ("RDATE:20261205T090000Z\r\nEXDATE:20261\r\n 201T090000Z\r\n", ["02", "03", "05"]),
    ],
)
def test_added_and_excluded_dates(lines, days):
    schedule = schedule_of(rrule=f"{RULE}\n{lines}", run_at="2026-12-01T09:00:00Z")
    taken = take(schedule, 9)
    assert taken == [utc(f"2026-12-{day}T09:00:00Z") for day in days]
    assert schedule.count(utc("2026-01-01T00:00:00Z"), utc("2027-01-01T00:00:00Z")) == len(days)


def test_a_floating_exdate_is_local_time():
    schedule = schedule_of(
        rrule=f"{RULE}\nEXDATE:20261202T090000", run_at="2026-12-01T09:00:00", timezone=NEW_YORK
    )
    assert take(schedule, 9) == [utc("2026-12-01T14:00:00Z"), utc("2026-12-03T14:00:00Z")]


def test_an_excluded_day_silences_a_rule_by_the_second():
    rule = "FREQ=SECONDLY\nEXDATE;VALUE=DATE:20260914,20260915"
    schedule = schedule_of(rrule=rule, run_at="2026-09-13T23:59:59", timezone=NEW_YORK)
    assert take(schedule, 2) == [utc("2026-09-14T03:59:59Z"), utc("2026-09-16T04:00:00Z")]
    assert schedule.count(utc("2026-09-14T03:59:00Z"), utc("2026-09-16T04:00:09Z")) == 11


@pytest.mark.parametrize(
    ("text", "zone_name", "first"),
    [
        ("DTSTART;TZID=America/New_York:20261201T090000\nRRULE:FREQ=DAILY", NEW_YORK, "2026-12-01T14:00:00Z"),
        ("RRULE:FREQ=DAILY\nDTSTART:20261201T090000Z", "UTC", "2026-12-01T09:00:00Z"),
        ("DTSTART:20261201T090000\nFREQ=DAILY", "UTC", "2026-12-01T09:00:00Z"),
        ("DTSTART;VALUE=DATE:20261201\nFREQ=DAILY", "UTC", "2026-12-01T00:00:00Z"),
        ('DTSTART;TZID="America/New_York":20261201T090000\nFREQ=DAILY', NEW_YORK, "2026-12-01T14:00:00Z"),
    ],
)
def test_a_dtstart_line_takes_the_place_of_run_at_and_timezone(text, zone_name, first):
    spec = spec_of(rrule=text)
    assert spec.timezone == zone_name
    assert compile_schedule(spec).first() == utc(first)
    assert spec_of(rrule=text, run_at=first, timezone=zone_name) == spec
    assert spec_of(rrule=text, run_at=spec.dtstart.isoformat()) == spec
    assert set(problems_of(rrule=text, run_at="2026-12-01T09:00:01Z")) == {"run_at"}
    assert set(problems_of(rrule=text, run_at="2026-12-01T09:00:00.5")) == {"run_at"}
    assert set(problems_of(rrule=text, run_at="0001-01-01T00:00:00+23:59")) == {"run_at"}


def test_times_of_day_are_ignored_when_dtstart_is_a_date():
    text = "DTSTART;VALUE=DATE:20241018\nFREQ=DAILY;BYHOUR=9;BYMINUTE=1,2;INTERVAL=2"
    assert take(schedule_of(rrule=text), 2) == [utc("2024-10-18T00:00:00Z"), utc("2024-10-20T00:00:00Z")]


def test_a_dtstart_line_and_timezone_must_not_contradict_each_other():
    for line in ("DTSTART;TZID=America/New_York:20261201T090000", "DTSTART:20261201T090000Z"):
        assert set(problems_of(rrule=f"{line}\nFREQ=DAILY", timezone="Europe/Berlin")) == {"timezone"}
    floating = spec_of(rrule="DTSTART:20261201T090000\nFREQ=DAILY", timezone="Europe/Berlin")
    assert (floating.timezone, floating.starts_at) == ("Europe/Berlin", utc("2026-12-01T08:00:00Z"))
    assert "timezone" in problems_of(rrule="DTSTART:20261201T090000\nFREQ=DAILY", timezone="Mars")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{RULE}\nEXRULE:FREQ=DAILY", "EXRULE was removed"),
        (f"{RULE}\n{RULE}", "several rules"),
        ("RDATE:20261205T090000Z", "no RRULE line"),
        (f"{RULE}\nRDATE;VALUE=PERIOD:20261205T090000Z/PT1H", "VALUE=PERIOD is not supported"),
        (f"{RULE}\nRDATE;TZID=Mars/Base:20261205T090000", "not the name of an IANA time zone"),
        (f"{RULE}\nRDATE;TZID=/etc/passwd:20261205T090000", "not the name of an IANA time zone"),
        (f"{RULE}\nRDATE;TZID=UTC:20261205T090000Z", "is already UTC"),
        (f"{RULE}\nRDATE;VALUE=DATE:20261205T090000Z", "takes a date such as"),
        (f"{RULE}\nRDATE:20261205", "write VALUE=DATE"),
        (f"{RULE}\nRDATE:20261205T090000Z,", "RDATE takes"),
        (f"{RULE}\nRDATE;X=1:20261205T090000Z", "VALUE and TZID"),
        (f"{RULE}\nSUMMARY:hello", "neither a rule"),
        (f"{RULE}\n\nRDATE:20261205T090000Z", "empty line"),
        ("RRULE;X=1:FREQ=DAILY", "no parameters"),
        ("FREQ=DAILY;BYMONTH=" + ",".join(["1"] * 4000), "at most 4096"),
        ("FREQ=DAILY;UNTIL=20260914T250000", "no such time"),
        ("FREQ=DAILY;;", "empty part"),
    ],
)
def test_line_errors_explain_the_fix(text, reason):
    assert reason in problems_of(rrule=text)["rrule"]


@pytest.mark.parametrize("text", ["freq=daily;count=3", "COUNT=3;FREQ=DAILY", "rrule:FREQ=DAILY;COUNT=03\n", RULE])
def test_what_rfc_5545_leaves_open_is_accepted(text):
    assert len(take(schedule_of(rrule=text, run_at="2026-12-01T09:00:00Z"), 9)) == 3


def test_every_problem_is_reported_at_once():
    problem_texts = problems_of(
        run_at="soon", rrule="FREQ=DAILY;INTERVAL=0;FOO=1", cron="61 * * * *", every="P1M", timezone="Mars"
    )
    assert set(problem_texts) == {"run_at", "rrule", "cron", "every", "timezone"}
    assert "at most one of" in problems_of(cron="@daily", every=60)["cron"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Mars/Base",
        "/etc/passwd",
        "../UTC",
        "localtime",
        "posixrules",
        "Factory",
        "europe/berlin",
        "UTC\0",
        "+02:00",
        "Europe/Berlin ",
        "__init__.py",
        "zone.tab",
        "Europe",
        "CON",
        "a" * 10_000,
    ],
)
def test_a_name_that_is_no_zone(name):
    assert set(problems_of(cron="@daily", timezone=name)) == {"timezone"}


def test_near_misses_are_named():
    assert "did you mean Europe/Berlin?" in problems_of(cron="@daily", timezone="Europe/Berln")["timezone"]
    assert "did you mean Europe/Berlin?" in problems_of(cron="@daily", timezone="europe/berlin")["timezone"]


def test_zones_come_from_the_package():
    assert tzdata_version()[:2] == "20"
    assert all(str(zone(name)) == name for name in zone_names())


@given(text=st.text(max_size=60), kind=st.sampled_from(("run_at", "rrule", "cron", "every", "timezone")))
@steady
def test_any_text_is_accepted_or_rejected(text, kind):
    fields = dict.fromkeys(("run_at", "rrule", "cron", "every", "timezone")) | {kind: text}
    try:
        resolve(**fields, stored_at=STORED_AT)
    except Rejected as rejected:
        assert rejected.problems


@given(
    parts=st.lists(
        st.sampled_from(
            (
                "FREQ=DAILY",
                "FREQ=SECONDLY",
                "FREQ=YEARLY",
                "INTERVAL=2147483647",
                "INTERVAL=86401",
                "COUNT=2147483647",
                "COUNT=7",
                "BYMONTH=2",
                "BYMONTHDAY=29,30",
                "BYDAY=MO",
                "BYDAY=53MO",
                "BYHOUR=2",
                "BYSECOND=5",
                "BYSETPOS=366",
                "BYWEEKNO=53",
                "BYYEARDAY=-366",
                "UNTIL=99991231T235959Z",
                "UNTIL=00010101",
                "WKST=SU",
            )
        ),
        min_size=1,
        max_size=7,
        unique=True,
    )
)
@steady
def test_hostile_rules_are_accepted_or_rejected(parts):
    try:
        schedule = schedule_of(rrule=";".join(parts), run_at="2026-09-14T09:00:00", timezone=NEW_YORK)
    except Rejected as rejected:
        assert all(problem.field == "rrule" for problem in rejected.problems)
    else:
        assert schedule.first() >= schedule.starts_at
