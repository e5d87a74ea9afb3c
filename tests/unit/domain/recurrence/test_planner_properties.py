"""Calendars and windows against a slow reference, around clock changes of many zones."""

# ruff: noqa: DTZ001 - wall times

from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
import slow_planner as slow
from hypothesis import given
from hypothesis import strategies as st
from recurrence_helpers import spec_of, steady

from scheduler.domain.recurrence.adjustment_fields import read_adjustments
from scheduler.domain.recurrence.planner import Adjustments, Planner, SkipReason

# Dates near clock changes: forward, back, at midnight, by half an hour, by a whole day.
PLACES = [
    ("UTC", datetime(2026, 5, 1)),
    ("Europe/Berlin", datetime(2026, 3, 29)),
    ("Europe/Berlin", datetime(2026, 10, 25)),
    ("America/New_York", datetime(2026, 3, 8)),
    ("America/New_York", datetime(2026, 11, 1)),
    ("America/Havana", datetime(2026, 3, 8)),
    ("America/Havana", datetime(2026, 11, 1)),
    ("America/Santiago", datetime(2026, 9, 6)),
    ("America/Santiago", datetime(2026, 4, 5)),
    ("Asia/Beirut", datetime(2026, 3, 29)),
    ("Asia/Beirut", datetime(2026, 10, 25)),
    ("America/Nuuk", datetime(2026, 3, 28)),
    ("America/Nuuk", datetime(2026, 10, 24)),
    ("Atlantic/Azores", datetime(2026, 3, 29)),
    ("Australia/Lord_Howe", datetime(2026, 10, 4)),
    ("Australia/Lord_Howe", datetime(2026, 4, 5)),
    ("Pacific/Apia", datetime(2011, 12, 30)),
    ("Pacific/Kwajalein", datetime(1993, 8, 21)),
    ("Antarctica/Troll", datetime(2026, 3, 29)),
]
POLICIES = ("skip", "next", "previous", "nearest", "next_in_month")
SPAN = timedelta(days=55)  # of listed nominal occurrences
SURE = timedelta(days=35)  # before the end of the list: nothing that is not listed is moved there

weekdays = st.lists(st.sampled_from(slow.WEEKDAYS), unique=True, max_size=7)
clock_times = st.tuples(st.integers(0, 23), st.sampled_from((0, 0, 15, 30, 45)))


@st.composite
def calendars(draw, around):
    """Draw a calendar with exceptions around a date, sometimes with more than 31 closed days in a row."""
    closed = draw(st.lists(st.integers(-10, 45), unique=True, max_size=20))
    if draw(st.integers(0, 5)) == 0:
        first = draw(st.integers(-10, 10))
        closed += range(first, first + draw(st.integers(25, 40)))
    opened = draw(st.lists(st.integers(-10, 45), unique=True, max_size=5))
    calendar = {"weekend": draw(weekdays)}
    calendar |= {"closed": slow.dates(around, closed), "open": slow.dates(around, opened)}
    if draw(st.integers(0, 3)) == 0:
        calendar["valid_until"] = next(iter(slow.dates(around, [draw(st.integers(-5, 40))])))
    return calendar


@st.composite
def windows(draw):
    """Draw a window: by day, overnight, 24 hours, or short enough to fall into a gap."""
    (hour, minute), (length, part) = draw(clock_times), draw(clock_times)
    start = hour * 60 + minute
    end = (start + draw(st.sampled_from((length * 60 + part, 15, 30, 60, 0)))) % 1440
    days = draw(weekdays)
    names = {"days": days} if days else {}
    return {"from": f"{start // 60:02d}:{start % 60:02d}", "to": f"{end // 60:02d}:{end % 60:02d}", **names}


def bounded(draw, text, start, zone, named):
    """Return a rule's fields and occurrences, perhaps with COUNT or UNTIL, an EXDATE and an RDATE."""
    instants = sorted(named)
    bound = draw(st.sampled_from(("", "", "COUNT", "UNTIL")))
    if bound and instants:
        number = draw(st.integers(1, len(instants)))
        named = {instant: named[instant] for instant in instants[:number]}
        text += f";COUNT={number}" if bound == "COUNT" else f";UNTIL={instants[number - 1]:%Y%m%dT%H%M%SZ}"
    if draw(st.integers(0, 3)) == 0 and len(named) > 1:  # it counts, although it is excluded
        excluded = draw(st.sampled_from(sorted(named)))
        named = {instant: wall for instant, wall in named.items() if instant != excluded}
        text += f"\nEXDATE:{excluded:%Y%m%dT%H%M%SZ}"
    if draw(st.integers(0, 3)) == 0:
        added = slow.by_rule(start, zone) + timedelta(hours=draw(st.integers(0, 200)), minutes=7)
        named = named | {added: slow.local(added, zone)}
        text += f"\nRDATE:{added:%Y%m%dT%H%M%SZ}"
    return {"rrule": text, "run_at": start.isoformat()}, named


@st.composite
def schedules(draw, zone, start):
    """Draw a schedule's fields, its named occurrences, and how its wall times are resolved."""
    end = start + SPAN
    kind = draw(st.sampled_from(("rule", "rule", "hourly rule", "fixed cron", "shown cron", "every", "once")))
    if kind == "rule":
        days, (hour, minute) = draw(weekdays), draw(clock_times)
        by_day = f";BYDAY={','.join(days)}" if days else ""
        text = f"FREQ=DAILY;BYHOUR={hour},{(hour + 1) % 24};BYMINUTE={minute};BYSECOND=0{by_day}"
        return *bounded(draw, text, start, zone, slow.rule_occurrences(text, start, zone, end)), slow.by_rule
    if kind == "hourly rule":
        text = f"FREQ=HOURLY;INTERVAL={draw(st.integers(1, 9))}"
        start += timedelta(minutes=draw(st.sampled_from((0, 15, 30))))
        return *bounded(draw, text, start, zone, slow.rule_occurrences(text, start, zone, end)), slow.by_rule
    stored = slow.by_rule(start, zone)
    if kind == "fixed cron":
        (hour, minute), chosen = draw(clock_times), draw(st.lists(st.integers(0, 6), unique=True, min_size=1))
        numbers = ",".join(str((day + 1) % 7) for day in sorted(chosen))
        cron = f"{minute} {hour},{(hour + 1) % 24} * * {numbers}"
        times = [(hour, minute), ((hour + 1) % 24, minute)]
        named = slow.fixed_cron_occurrences(times, chosen, stored, zone, end)
        return {"cron": cron, "stored_at": stored}, named, slow.right_after_gap
    if kind == "shown cron":
        minutes = draw(st.lists(st.sampled_from((0, 15, 30, 45)), unique=True, min_size=1, max_size=2))
        fields = {"cron": f"{','.join(map(str, minutes))} * * * *", "stored_at": stored}
        return fields, slow.shown_cron_occurrences(minutes, stored, zone, end), slow.by_rule
    if kind == "every":
        spacing = timedelta(minutes=draw(st.sampled_from((45, 60, 420, 1440, 1441, 10000))), milliseconds=250)
        fields = {"every": spacing.total_seconds(), "run_at": stored.isoformat()}
        return fields, slow.every_occurrences(spacing, stored, zone, end), slow.by_rule
    hour, minute = draw(clock_times)
    wall = start.replace(hour=hour, minute=minute)
    return {"run_at": wall.isoformat()}, {slow.by_rule(wall, zone): wall}, slow.by_rule


@st.composite
def cases(draw):
    """Draw all that a planner needs, and the reference's answer."""
    zone, change = draw(st.sampled_from(PLACES))
    start = change + timedelta(days=draw(st.integers(-4, 1)))
    fields, named, resolve = draw(schedules(zone, start))
    calendar = draw(st.none() | calendars(change))
    policy = draw(st.sampled_from(POLICIES)) if calendar is not None else None
    window = draw(st.none() | windows())
    return zone, start, fields, named, resolve, calendar, policy, window


@steady
@given(cases())
def test_calendars_and_windows_as_the_slow_reference_has_them(case):
    zone, start, fields, named, resolve, calendar, policy, window = case
    rows, skipped = slow.plan(
        named, zone, calendar=calendar, policy=policy or "skip", window=window, resolve=resolve
    )
    adjustments = read_adjustments({"calendar": calendar, "on_closed": policy, "window": window}) or Adjustments()
    planner = Planner(spec_of(timezone=zone, keep_wall=True, **fields), adjustments)
    sure = (start + SPAN - SURE).replace(tzinfo=UTC)
    found = list(takewhile(lambda each: each.due_at < sure, planner.all()))
    expected = [row for row in rows if row[1] < sure]
    assert [(each.nominal_at, each.due_at, each.merged) for each in found] == [
        (nominal, planned, len(merged)) for nominal, planned, merged in expected
    ]
    for each, (_, _, merged) in zip(found, expected, strict=True):
        assert planner.merged(each, 10) == merged[-10:]
    # From the middle on, from an instant at which one is due, and right before it.
    for middle in {each.due_at for each in found[len(found) // 2 :][:2]}:
        for after in (middle, middle - timedelta(microseconds=1), middle + timedelta(hours=7)):
            later = list(takewhile(lambda each: each.due_at < sure, planner.after(after)))
            assert later == [each for each in found if each.due_at > after]
            assert_counted(planner, found, after)
    passed = [(instant, SkipReason.CALENDAR) for instant in skipped]
    passed += [(each, SkipReason.MERGED) for _, _, merged in rows for each in merged]
    end = (start + timedelta(days=10)).replace(tzinfo=UTC)
    listed = planner.skipped(datetime(1990, 1, 1, tzinfo=UTC), end, 100)
    expected = sorted(row for row in passed if row[0] <= end)[:100]
    assert [(each.nominal_at, each.reason) for each in listed] == expected


@steady
@given(cases(), st.sampled_from((1, 900, 7200, 86_400)), st.uuids())
def test_jitter_delays_each_event_within_its_window_and_keeps_the_order(case, jitter, job_id):
    zone, start, fields, named, resolve, calendar, policy, window = case
    rows, _ = slow.plan(named, zone, calendar=calendar, policy=policy or "skip", window=window, resolve=resolve)
    given = {"calendar": calendar, "on_closed": policy, "window": window, "jitter": jitter}
    planner = Planner(spec_of(timezone=zone, keep_wall=True, **fields), read_adjustments(given), job_id)
    limit, sure = timedelta(seconds=jitter), (start + SPAN - SURE).replace(tzinfo=UTC)
    found = list(takewhile(lambda each: each.due_at < sure, planner.all()))
    assert [each.due_at for each in found] == sorted(each.due_at for each in found)
    expected = {nominal: (planned, len(merged)) for nominal, planned, merged in rows}
    assert {each.nominal_at for each in found} >= {
        nominal for nominal, planned, _ in rows if planned + limit < sure}
    for each in found:
        planned, merged = expected[each.nominal_at]
        assert (each.planned_at, each.merged) == (planned, merged)
        assert planned <= each.due_at < planned + limit
        if window is not None:
            assert slow.in_window(each.due_at, window, None, zone) == each.due_at
    again = Planner(spec_of(timezone=zone, keep_wall=True, **fields), read_adjustments(given), job_id)
    if found:
        middle = found[len(found) // 2].due_at
        later = list(takewhile(lambda each: each.due_at < sure, again.after(middle)))
        assert later == [each for each in found if each.due_at > middle]
        assert_counted(planner, found, middle)


def assert_counted(planner, found, after):
    """Check the number of occurrences after an instant, up to each of the last three found."""
    for last in found[-3:]:
        between = [occurrence for occurrence in found if after < occurrence.due_at <= last.due_at]
        if between:
            assert planner.count_due(after, last.due_at) == sum(1 + occurrence.merged for occurrence in between)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("place", range(len(PLACES)))
def test_every_seven_minutes_over_a_clock_change(place, policy):
    zone, change = PLACES[place]
    start, end = change - timedelta(days=1), change + timedelta(days=2)
    calendar = {"closed": slow.dates(change, [0]), "weekend": []}
    text = "FREQ=MINUTELY;INTERVAL=7"
    named = slow.rule_occurrences(text, start, zone, end - timedelta(seconds=1))
    rows, _ = slow.plan(named, zone, calendar=calendar, policy=policy)
    until = (end - timedelta(seconds=1)).strftime("%Y%m%dT%H%M%S")
    spec = spec_of(rrule=f"{text};UNTIL={until}", run_at=start.isoformat(), timezone=zone)
    planner = Planner(spec, read_adjustments({"calendar": calendar, "on_closed": policy}))
    found = [(each.nominal_at, each.due_at, each.merged) for each in planner.all()]
    assert found == [(nominal, planned, len(merged)) for nominal, planned, merged in rows]
