"""Results equal dateutil's for random rules, zones, starts and queries that it answers in time."""
# ruff: noqa: PT017 - a rejection is a valid result here, and its text is checked

from bisect import bisect_right
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from oracle import WEEKDAYS, expand, rules, starts
from recurrence_helpers import schedule_of, spec_of, steady, take, wall_to_utc

from scheduler.domain.errors import Rejected
from scheduler.domain.recurrence import compile_schedule

MICRO = timedelta(microseconds=1)
SUBDAILY = ("FREQ=HOURLY", "FREQ=MINUTELY", "FREQ=SECONDLY")


def expected(rule, start):
    """Return dateutil's instants, the cut-off up to which they are complete, and ours."""
    (freq, text), (zone, wall) = rule, start
    instants, cut = expand(text, wall, zone, freq)
    first = wall_to_utc(wall, zone)
    if freq == "WEEKLY" and "BYSETPOS" in text:
        # dateutil truncates the set of the first week; see test_departures.py.
        wkst = WEEKDAYS.index(text.partition("WKST=")[2][:2] or "MO")
        monday = wall.replace(hour=0, minute=0, second=0) - timedelta(days=(wall.weekday() - wkst) % 7)
        first = max(first, wall_to_utc(monday + timedelta(days=7), zone))
    return [instant for instant in instants if instant >= first], cut, first


def ours(rule, start, cut, first):
    """Return our schedule and its instants before the cut-off; no schedule if it was refused."""
    (_, text), (zone, wall) = rule, start
    try:
        schedule = schedule_of(rrule=text, run_at=wall.isoformat(), timezone=zone)
    except Rejected as rejected:
        assert "fire" in str(rejected), str(rejected)
        return None, []
    found = []
    for instant in schedule.after(first - MICRO):
        if instant >= cut:
            break
        found.append(instant)
    return schedule, found


@given(rule=rules(), start=starts())
@steady
def test_same_instants(rule, start):
    instants, cut, first = expected(rule, start)
    _, found = ours(rule, start, cut, first)
    assert found == instants


@given(rule=rules(weeks=51), start=starts())
@steady
def test_same_instants_by_week_number(rule, start):
    instants, cut, first = expected(rule, start)
    _, found = ours(rule, start, cut, first)
    assert found == instants


@given(rule=rules(), start=starts(), data=st.data())
@steady
def test_same_answers_from_random_points(rule, start, data):
    instants, cut, first = expected(rule, start)
    schedule, _ = ours(rule, start, cut, first)
    if schedule is None or not instants:
        return
    seconds = int((cut - first).total_seconds())
    for _ in range(5):
        now = first + timedelta(seconds=data.draw(st.integers(0, seconds)))
        now = data.draw(st.sampled_from((now, data.draw(st.sampled_from(instants)))))
        after = bisect_right(instants, now)
        if after < len(instants):
            assert schedule.next_after(now) == instants[after]
        assert schedule.next_after(now - MICRO) != now - MICRO


@given(rule=rules(), start=starts(), data=st.data())
@steady
def test_same_numbers(rule, start, data):
    instants, cut, first = expected(rule, start)
    schedule, _ = ours(rule, start, cut, first)
    if schedule is None or not instants:
        return
    after = data.draw(st.sampled_from([first - MICRO, *instants]))
    until = data.draw(st.sampled_from(instants)) + timedelta(seconds=data.draw(st.integers(-1, 1)))
    between = [instant for instant in instants if after < instant <= until]
    if until < cut:
        assert schedule.count(after, until) == len(between)
        assert schedule.newest(until, 7, after) == between[-7:]


@given(rule=rules(), start=starts(), data=st.data())
@steady
def test_numbers_agree_with_stepping(rule, start, data):
    """Over decades, where whole years are counted as one."""
    (_, text), (zone, wall) = rule, start
    try:
        schedule = schedule_of(rrule=text, run_at=wall.isoformat(), timezone=zone)
    except Rejected:
        return
    instants = take(schedule, 250)
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(instants) - 1)] * 2)))
    assert schedule.count(instants[first], instants[last]) == last - first
    assert schedule.count(instants[0] - MICRO, instants[-1]) == len(instants)
    assert schedule.newest(instants[last], 3, instants[first]) == instants[first + 1 : last + 1][-3:]


@given(rule=rules(), start=starts(), count=st.integers(1, 60))
@steady
def test_count_gives_exactly_that_many(rule, start, count):
    (_, text), (zone, wall) = rule, start
    try:
        endless = schedule_of(rrule=text, run_at=wall.isoformat(), timezone=zone)
    except Rejected:
        return
    spec = spec_of(rrule=f"{text};COUNT={count}", run_at=wall.isoformat(), timezone=zone)
    schedule = compile_schedule(spec)
    wanted = take(endless, count)
    far = wanted[-1] > spec.starts_at + timedelta(days=365_000)
    if spec.ends_at is None and text.startswith(SUBDAILY) and far:
        return  # a limit that is documented: it counts as endless
    assert take(schedule, count + 1) == wanted
    if len(wanted) == count:
        assert spec.ends_at == wanted[-1]
        assert schedule.count(wanted[0] - MICRO, wanted[-1] + timedelta(days=9999)) == count


@given(rule=rules(), start=starts(), days=st.integers(0, 400))
@steady
def test_until_is_the_last_instant(rule, start, days):
    (_, text), (zone, wall) = rule, start
    until = wall_to_utc(wall, zone) + timedelta(days=days)
    bounded = f"{text};UNTIL={until:%Y%m%dT%H%M%SZ}"
    try:
        endless = schedule_of(rrule=text, run_at=wall.isoformat(), timezone=zone)
        schedule = schedule_of(rrule=bounded, run_at=wall.isoformat(), timezone=zone)
    except Rejected as rejected:
        assert "fire" in str(rejected)
        return
    taken = take(schedule, 30)
    assert taken == [instant for instant in take(endless, 30) if instant <= until]
