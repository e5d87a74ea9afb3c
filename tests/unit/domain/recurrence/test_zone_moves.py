"""Schedules planned again with other zone data."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zone_support import zone_file

from scheduler.domain.recurrence import compile_schedule
from scheduler.domain.recurrence.resolve import resolve
from scheduler.domain.recurrence.schedule import to_seconds
from scheduler.domain.recurrence.zone_changes import fingerprint, zone_changed
from scheduler.domain.recurrence.zone_data import PACKAGED, ZoneData
from scheduler.domain.recurrence.zone_moves import move
from scheduler.domain.recurrence.zones import clock_in

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
CHANGE = datetime(2026, 12, 1, 8, tzinfo=UTC)
ZONE = "America/Vancouver"
BEFORE = zone_file(-8)


def clocks(after, before=BEFORE):
    old, new = ZoneData("2026f", "", {ZONE: before}), ZoneData("2026g", "", {ZONE: after})
    return clock_in(old, ZONE), clock_in(new, ZONE)


def spec_in(local, **fields):
    """Resolve a request in a zone whose data is not that of this process."""
    fields = {"run_at": None, "rrule": None, "cron": None, "every": None, "timezone": ZONE} | fields
    with_package = resolve(**fields, stored_at=NOW)
    return move(with_package, with_package.starts_at, clock_in(PACKAGED, ZONE), local, NOW)[0]


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


LATER, EARLIER = zone_file(-8, (CHANGE, -9)), zone_file(-8, (CHANGE, -7))


@pytest.mark.parametrize(("fields", "planned", "after", "expected"), [
    # One-shots, rules and cron keep the wall time, whichever way the clocks move.
    ({"run_at": "2027-03-01T09:00:00"}, "2027-03-01T17:00", EARLIER, "2027-03-01T16:00"),
    ({"run_at": "2027-03-01T09:00:00"}, "2027-03-01T17:00", LATER, "2027-03-01T18:00"),
    ({"cron": "0 9 * * *"}, "2026-12-05T17:00", EARLIER, "2026-12-05T16:00"),
    ({"cron": "0 9 * * *"}, "2026-12-05T17:00", LATER, "2026-12-05T18:00"),
    ({"rrule": "FREQ=DAILY", "run_at": "2026-11-01T09:00:00"}, "2026-12-05T17:00", LATER, "2026-12-05T18:00"),
    # Before the change nothing moves.
    ({"cron": "0 9 * * *"}, "2026-11-20T17:00", LATER, "2026-11-20T17:00"),
    # A start to come moves too, or the first occurrence would be before it.
    ({"cron": "0 9 * * *", "run_at": "2026-12-05T09:00:00"}, "2026-12-05T17:00", EARLIER, "2026-12-05T16:00"),
    ({"rrule": "FREQ=DAILY", "run_at": "2026-12-05T09:00:00"}, "2026-12-05T17:00", EARLIER, "2026-12-05T16:00"),
    # An hourly job: neither a wall time nor an instant occurs again.
    ({"cron": "0 * * * *"}, "2026-12-05T17:00", EARLIER, "2026-12-05T17:00"),
    ({"cron": "0 * * * *"}, "2026-12-05T17:00", LATER, "2026-12-05T18:00"),
    # A change by half an hour brings the next wall time forward to another instant.
    ({"cron": "0 * * * *"}, "2026-12-05T17:00", zone_file(-8, (CHANGE, -7.5)), "2026-12-05T16:30"),
    # EXDATE excludes the wall time that it names.
    ({"rrule": "FREQ=DAILY\nEXDATE:20261206T090000", "run_at": "2026-11-01T09:00:00"}, "2026-12-05T17:00", LATER,
     "2026-12-05T18:00"),
])
def test_the_wall_time_stays_and_the_instant_moves(fields, planned, after, expected):
    old, new = clocks(after)
    _, following = move(spec_in(old, **fields), at(planned), old, new, NOW)
    assert following == at(expected)


def test_an_excluded_wall_time_stays_excluded():
    old, new = clocks(LATER)
    spec = spec_in(old, rrule="FREQ=DAILY\nEXDATE:20261206T090000", run_at="2026-11-01T09:00:00")
    moved, following = move(spec, at("2026-12-05T17:00"), old, new, NOW)
    assert list(islice(compile_schedule(moved, new).since(following), 2)) == [
        at("2026-12-05T18:00"), at("2026-12-07T18:00")]


def test_the_last_wall_time_by_count_stays():
    old, new = clocks(LATER)
    spec = spec_in(old, rrule="FREQ=DAILY;COUNT=40", run_at="2026-11-01T09:00:00")
    moved, following = move(spec, at("2026-12-05T17:00"), old, new, NOW)
    rest = list(compile_schedule(moved, new).since(following))
    assert rest[0] == at("2026-12-05T18:00")
    assert rest[-1] == at("2026-12-10T18:00")  # the 40th day


def test_a_time_that_the_old_clocks_skip_returns_when_they_no_longer_do():
    gap = datetime(2026, 12, 5, 10, tzinfo=UTC)  # 02:00 is followed by 03:00
    old, new = clocks(BEFORE, before=zone_file(-8, (gap, -7)))
    spec = spec_in(old, rrule="FREQ=DAILY", run_at="2026-11-01T02:30:00")
    _, following = move(spec, at("2026-12-05T10:30"), old, new, NOW)
    assert following == at("2026-12-05T10:30")
    _, following = move(spec, at("2026-12-06T09:30"), old, new, NOW)
    assert following == at("2026-12-06T10:30")


def test_an_added_instant_in_utc_stays():
    old, new = clocks(LATER)
    spec = spec_in(old, rrule="FREQ=DAILY;BYHOUR=9\nRDATE:20261205T200000Z", run_at="2026-11-01T09:00:00")
    assert move(spec, at("2026-12-05T20:00"), old, new, NOW)[1] == at("2026-12-05T20:00")


@pytest.mark.parametrize(("after", "expected"), [(EARLIER, "16:00"), (LATER, "18:00"), (BEFORE, "17:00")])
def test_without_the_old_data_the_nearest_occurrence_is_next(after, expected):
    old, new = clocks(after)
    spec = spec_in(old, cron="0 9 * * *")
    assert move(spec, at("2026-12-05T17:00"), None, new, NOW)[1] == at(f"2026-12-05T{expected}")


# The closest two changes of a real zone are a week apart.
WEEKS, QUARTERS = st.integers(0, 8), st.integers(-40, -24)
CHANGES = st.lists(st.tuples(WEEKS, QUARTERS), max_size=3, unique_by=lambda change: change[0]).map(
    lambda changes: [(NOW + timedelta(days=8 * week, hours=-4), hours / 4) for week, hours in sorted(changes)])
RULES = st.sampled_from([
    {"cron": "0 9 * * *"}, {"cron": "30 2,14 * * *"}, {"cron": "*/20 * * * *"}, {"cron": "0 9-17 * * 1-5"},
    {"rrule": "FREQ=DAILY", "run_at": "2026-11-01T02:30:00"},
    {"rrule": "FREQ=HOURLY", "run_at": "2026-11-01T02:30:00"},
    {"rrule": "FREQ=WEEKLY;BYDAY=MO,TH;BYHOUR=1,2,3", "run_at": "2026-11-01T09:00:00"},
])


@given(fields=RULES, before=CHANGES, after=CHANGES, emitted=st.integers(0, 100))
def test_nothing_settled_occurs_again_and_no_daily_wall_time_is_lost(fields, before, after, emitted):
    """Compare with the emitted occurrences one by one: neither an instant nor, once a day, a wall time repeats."""
    old, new = clocks(zone_file(-8, *after), before=zone_file(-8, *before))
    spec = spec_in(old, **fields)
    planned = list(islice(compile_schedule(spec, old).since(NOW), emitted + 1))
    settled, next_run_at = planned[:-1], planned[-1]
    moved, following = move(spec, next_run_at, old, new, NOW)
    later = list(islice(compile_schedule(moved, new).since(following), 20))
    assert not {following} & set(settled)
    assert later[0] == following
    if fields.get("cron") == "0 9 * * *":  # 09:00 exists once on each day, or is in a gap
        def days(instants, local):
            return [(second + local.offset(second)) // 86_400 for second in (to_seconds(at)[0] for at in instants)]
        assert days(later, new)[0] == days([next_run_at], old)[0]
        assert not set(days(settled, old)) & set(days(later, new))


def test_the_fingerprint_covers_five_years():
    soon = NOW + timedelta(days=5 * 365)
    late = NOW + timedelta(days=5 * 366)
    for changed, expected in ((zone_file(-8, (soon, -7)), True), (zone_file(-8, (late, -7)), False),
                              (zone_file(-8, footer="PST8"), False), (EARLIER, True)):
        old, new = ZoneData("2026f", "", {ZONE: BEFORE}), ZoneData("2026g", "", {ZONE: changed})
        assert zone_changed(ZONE, old, new, NOW) is expected
        assert zone_changed(ZONE, new, old, NOW) is expected
        assert (fingerprint(clock_in(old, ZONE), NOW) != fingerprint(clock_in(new, ZONE), NOW)) is expected
    assert not zone_changed("Europe/Berlin", old, new, NOW)
