"""Debian cron: against cronsim over random expressions and zones, and the promises one by one."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st
from oracle import starts
from recurrence_helpers import schedule_of, spec_of, steady, take, utc, wall_to_utc, zone_info

from scheduler.domain.errors import Rejected
from scheduler.domain.recurrence.day_masks import DAY
from scheduler.domain.recurrence.schedule import to_seconds
from scheduler.domain.recurrence.zones import clock

MICRO = timedelta(microseconds=1)


def _field(low, high, names=()):
    number = st.integers(low, high).map(str)
    if names:
        number |= st.sampled_from(names)
    pair = st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)
    span = pair.map(lambda two: f"{two[0]}-{two[1]}")
    wide = pair.filter(lambda two: two[0] < two[1]).map(lambda two: f"{two[0]}-{two[1]}")  # cronsim: 5-5/2 is 5/2
    step = st.tuples(st.just("*") | wide, st.integers(1, 20)).map(lambda two: f"{two[0]}/{two[1]}")
    item = number | span | step
    return st.just("*") | item | st.lists(item, min_size=1, max_size=3).map(",".join)


@st.composite
def expressions(draw):
    days = _field(1, 31) | st.sampled_from(("L", "LW", "1,L", "15,LW"))
    weekdays = _field(0, 7, ("SUN", "mon", "Sat")) | st.sampled_from(("5L", "5#2", "0L", "7#1", "1,5#5", "MON#1"))
    months = st.just("*") | _field(1, 12, ("JAN", "feb"))
    hours = _field(0, 23) | st.sampled_from(("0", "1", "2", "3", "1-3", "0,2"))
    fields = (
        draw(_field(0, 59)),
        draw(hours),
        draw(st.just("*") | days),
        draw(months),
        draw(st.just("*") | weekdays),
    )
    return " ".join(fields)


def _exists(moment):
    """Return whether this wall time exists: cronsim returns a skipped midnight for wildcard times."""
    return moment == moment.astimezone(UTC).astimezone(moment.tzinfo)


def _elapsed(expression):
    """Return whether the times are wildcards, which follow elapsed time."""
    return any(field.startswith("*") for field in expression.split()[:2])


def _beyond_cronsim(zone, after, until):
    """Return whether cronsim handles the clock change wrongly: see the tests below."""
    for shift in clock(zone).shifts(to_seconds(after)[0] - DAY, to_seconds(until)[0]):
        over_midnight = (shift.at + shift.after) // DAY != (shift.at - 1 + shift.before) // DAY
        if shift.size % 3600 or (shift.at + shift.before) % 3600 or over_midnight:
            return True
    return False


def _shown_after(expression, zone, instant):
    """Return the next matching time on the clock, found minute by minute."""
    wanted, info = CronSim(expression, datetime(2000, 1, 1)), zone_info(zone)  # noqa: DTZ001 - to read the fields

    def on_day(moment):
        local = moment.astimezone(info)
        return local.month in wanted.months and wanted.match_day(local.date())

    instant = instant.replace(second=0) + timedelta(minutes=1)
    while True:
        local = instant.astimezone(info)
        if on_day(instant) and local.hour in wanted.hours and local.minute in wanted.minutes:
            return instant
        hour = timedelta(hours=1)
        instant += timedelta(minutes=1) if on_day(instant) or on_day(instant + hour) else hour


@given(expression=expressions(), start=starts())
@steady
def test_same_instants_as_cronsim(expression, start):
    zone, wall = start
    now = wall_to_utc(wall, zone)
    try:
        schedule = schedule_of(cron=expression, timezone=zone, stored_at=now)
    except Rejected as rejected:
        assert "fire" in str(rejected), str(rejected)  # noqa: PT017 - only some are rejected
        return
    simulated = CronSim(expression, now.astimezone(zone_info(zone)))
    instants = [moment.astimezone(UTC) for moment in islice(simulated, 12) if _exists(moment)]
    # Started inside a second pass cronsim can return the past, and it may repeat a wall time.
    wanted = sorted({instant for instant in instants if instant > now})[:8]
    taken = take(schedule, max(len(wanted), 1), now)
    if taken != wanted and _elapsed(expression) and _beyond_cronsim(zone, now, max(taken + wanted)):
        wanted = [_shown_after(expression, zone, before) for before in [now, *taken][:-1]]
    assert taken == wanted


@given(expression=expressions(), start=starts(), data=st.data())
@steady
def test_numbers_agree_with_stepping(expression, start, data):
    zone, wall = start
    now = wall_to_utc(wall, zone)
    try:
        schedule = schedule_of(cron=expression, timezone=zone, stored_at=now)
    except Rejected:
        return
    instants = take(schedule, 60)
    assert all(later > earlier for earlier, later in pairwise(instants))
    after, until = sorted(
        data.draw(st.sampled_from(instants)) + data.draw(st.sampled_from((-MICRO, MICRO * 0))) for _ in "12"
    )
    between = [instant for instant in instants if after < instant <= until]
    assert schedule.count(after, until) == len(between)
    assert schedule.newest(until, 5, after) == between[-5:]


def test_fixed_times_run_right_after_a_gap_and_once_in_a_fold():
    schedule = schedule_of(cron="30 2 * * *", timezone="America/New_York", stored_at=utc("2026-03-08T00:00:00Z"))
    assert take(schedule, 2) == [utc("2026-03-08T07:00:00Z"), utc("2026-03-09T06:30:00Z")]
    schedule = schedule_of(cron="30 1 * * *", timezone="America/New_York", stored_at=utc("2026-11-01T00:00:00Z"))
    assert take(schedule, 2) == [utc("2026-11-01T05:30:00Z"), utc("2026-11-02T06:30:00Z")]


def test_wildcard_times_follow_elapsed_time():
    schedule = schedule_of(cron="*/30 * * * *", timezone="America/New_York", stored_at=utc("2026-11-01T05:00:00Z"))
    assert take(schedule, 5) == [utc("2026-11-01T05:00:00Z") + timedelta(minutes=30 * n) for n in range(5)]


def test_starting_in_the_second_pass_never_returns_the_past():
    now = utc("2026-11-01T06:10:00Z")  # 01:10 EST, the second time
    schedule = schedule_of(cron="5,30 1 * * *", timezone="America/New_York", stored_at=now)
    assert take(schedule, 1, now) == [utc("2026-11-02T06:05:00Z")]


def test_where_midnight_is_skipped_the_day_begins_with_the_first_time_shown():
    """cronsim calls that instant 00:00, which no clock shows; it is 01:00."""
    zone, now = "America/Havana", utc("1996-04-07T04:59:58Z")
    schedule = schedule_of(cron="* * * * 0", timezone=zone, stored_at=now)
    assert take(schedule, 2, now) == [utc("1996-04-07T05:00:00Z"), utc("1996-04-07T05:01:00Z")]
    assert _shown_after("* * * * 0", zone, now) == utc("1996-04-07T05:00:00Z")
    assert not _exists(next(CronSim("* * * * 0", now.astimezone(zone_info(zone)))))


def test_a_wildcard_time_in_a_skipped_midnight_does_not_run():
    schedule = schedule_of(cron="* 0 * * 0", timezone="Atlantic/Azores", stored_at=utc("1996-03-31T00:59:58Z"))
    assert schedule.first() == utc("1996-04-07T00:00:00Z")


def test_after_half_an_hour_twice_the_hours_still_start_at_their_first_minute():
    """cronsim steps by whole hours from before the fold and finds 00:30, then 00:31, never 00:00."""
    zone, now = "Australia/Lord_Howe", utc("1996-03-30T14:59:59Z")  # 01:59:59; a second later it is 01:30 again
    midnight = utc("1996-03-31T13:30:00Z")
    assert midnight.astimezone(zone_info(zone)).isoformat() == "1996-04-01T00:00:00+10:30"
    schedule = schedule_of(cron="* 0 * * *", timezone=zone, stored_at=now)
    assert take(schedule, 2, now) == [midnight, midnight + timedelta(minutes=1)]
    assert _shown_after("* 0 * * *", zone, now) == midnight
    assert next(CronSim("* 0 * * *", now.astimezone(zone_info(zone)))) == midnight + timedelta(minutes=30)


def test_an_hour_that_begins_late_runs_from_its_first_minute():
    """At 00:01 it is 01:01: cronsim looks at 01:00, which is skipped, and leaves out the whole hour."""
    zone, now = "America/St_Johns", utc("1996-04-07T03:30:58Z")
    assert now.astimezone(zone_info(zone)).isoformat() == "1996-04-07T00:00:58-03:30"
    first = utc("1996-04-07T03:31:00Z")
    assert first.astimezone(zone_info(zone)).isoformat() == "1996-04-07T01:01:00-02:30"
    schedule = schedule_of(cron="* 1 * * *", timezone=zone, stored_at=now)
    assert take(schedule, 2, now) == [first, first + timedelta(minutes=1)]
    assert _shown_after("* 1 * * *", zone, now) == first
    theirs = next(CronSim("* 1 * * *", now.astimezone(zone_info(zone))))
    assert theirs.astimezone(UTC) == utc("1996-04-08T03:30:00Z")


def test_where_the_clocks_go_back_over_midnight_its_day_comes_twice():
    """At 00:01 it is 23:01 of Saturday again: cronsim looks for Sunday, and never leaves its first 00:00."""
    zone, now = "America/St_Johns", utc("1996-10-27T02:30:00Z")
    midnight = utc("1996-10-27T03:30:00Z")
    assert now.astimezone(zone_info(zone)).isoformat() == "1996-10-27T00:00:00-02:30"
    assert midnight.astimezone(zone_info(zone)).isoformat() == "1996-10-27T00:00:00-03:30"
    schedule = schedule_of(cron="* * * * 0", timezone=zone, stored_at=now)
    assert take(schedule, 2, now) == [midnight, midnight + timedelta(minutes=1)]
    assert _shown_after("* * * * 0", zone, now) == midnight
    theirs = islice(CronSim("* * * * 0", now.astimezone(zone_info(zone))), 9)
    assert {moment.astimezone(UTC) for moment in theirs} == {now}


def test_a_time_that_always_falls_into_the_gap_is_refused():
    with pytest.raises(Rejected, match="within 100 years"):
        spec_of(cron="* 2 8-14 3 */7", timezone="America/New_York")


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@Annually", "0 0 1 1 *"),
    ],
)
def test_short_forms(short, long):
    assert take(schedule_of(cron=short), 5) == take(schedule_of(cron=long), 5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("@reboot", "not supported"),
        ("@fortnightly", "the short forms are"),
        ("0 0 9 * * *", "seconds are not part of cron"),
        ("61 25 * * *", "minute takes 0 to 59.*hour takes 0 to 23"),
        ("0 0 * * 6-0", "runs backwards"),
        ("0 0 * * 8", "day of week takes 0 to 7 or SUN to SAT"),
        ("0 0 * * 1#6", "day of week"),
        ("*/٣ * * * *", "minute"),
        ("0 0 30 2 *", "February has no day 30"),
        ("0" * 2000 + " * * * *", "at most 1024"),
    ],
)
def test_errors_explain_the_fix(text, reason):
    with pytest.raises(Rejected, match=reason) as verdict:
        spec_of(cron=text)
    assert {problem.field for problem in verdict.value.problems} == {"cron"}


def test_first_match_not_before_the_start():
    schedule = schedule_of(cron="0 9 * * *", run_at="2026-09-14T09:00:00", timezone="Europe/Berlin")
    assert schedule.first() == utc("2026-09-14T07:00:00Z")
