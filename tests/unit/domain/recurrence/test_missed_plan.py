"""Emission after downtime equals a plain list of occurrences."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recurrence_helpers import schedule_of, steady, take, utc

from scheduler.domain.jobs.missed import GRACE, EmissionPlan, plan
from scheduler.domain.messages import MAX_MISSED, OnMissed

START = utc("2026-03-07T00:00:00Z")
MINUTE = timedelta(minutes=1)


def brute(occurrences, now, on_missed, max_lateness, missed_before):
    """Decide from the list of all occurrences, the first of which is due."""
    due = [instant for instant in occurrences if instant <= now]
    coming = next((instant for instant in occurrences if instant > now), None)
    newest = due[-1]
    missed = now - newest > GRACE or (
        missed_before is not None and newest <= missed_before
        and (missed_before <= now or now - newest > timedelta(seconds=1))
    )
    too_late = [instant for instant in due if max_lateness is not None and now - instant > max_lateness]
    if on_missed is OnMissed.ALL:
        kept = [instant for instant in due[-MAX_MISSED:] if instant not in too_late]
        emit = kept[:1]
        coming = kept[1] if len(kept) > 1 else coming
        passed = due[: due.index(emit[0])] if emit else due
        reason = "limit" if len(kept) == MAX_MISSED else "max_lateness"
    elif newest in too_late or (on_missed is OnMissed.SKIP and missed):
        emit, passed = [], due
        reason = "max_lateness" if newest in too_late else "skip"
    else:
        emit, passed, reason = [newest], due[:-1], str(on_missed)
    folded = len(passed) if emit and on_missed is OnMissed.LATEST else 0
    return EmissionPlan(
        emit[0] if emit else None, folded, tuple(passed[-MAX_MISSED:]), len(passed), reason if passed else None,
        coming,
    )


@given(
    rule=st.sampled_from(
        (
            "FREQ=MINUTELY",
            "FREQ=HOURLY",
            "FREQ=MINUTELY;INTERVAL=7;BYHOUR=1,2,3",
            "FREQ=DAILY;COUNT=3",
            "FREQ=SECONDLY;INTERVAL=40;COUNT=200",
            "FREQ=MINUTELY;COUNT=150",
        )
    ),
    late=st.integers(0, 90) | st.integers(0, 20_000) | st.integers(0, 4 * 86_400),
    on_missed=st.sampled_from(OnMissed),
    max_lateness=st.none() | st.integers(0, 90) | st.integers(0, 20_000),
    paused=st.none() | st.integers(0, 100_000),
)
@steady
def test_same_as_brute_force(rule, late, on_missed, max_lateness, paused):
    schedule = schedule_of(rrule=rule, run_at="2026-03-07T00:00:00", timezone="America/New_York")
    due_at = schedule.first()
    now = due_at + timedelta(seconds=late)
    lateness = None if max_lateness is None else timedelta(seconds=max_lateness)
    missed_before = None if paused is None else due_at + timedelta(seconds=paused)
    occurrences = []
    for instant in schedule.after(due_at - MINUTE):
        occurrences.append(instant)
        if instant > now:
            break
    planned = plan(schedule, due_at, now, on_missed, lateness, one_shot=False, missed_before=missed_before)
    assert planned == brute(occurrences, now, on_missed, lateness, missed_before)


def test_all_is_emitted_one_by_one_and_then_goes_on():
    schedule = schedule_of(every=60, run_at="2026-03-07T00:00:00Z")
    now, due_at, emitted = START + 250 * MINUTE, START, []
    first = plan(schedule, due_at, now, OnMissed.ALL, None, one_shot=False)
    assert (first.passed_count, len(first.passed), first.reason) == (151, 100, "limit")
    while due_at <= now:
        step = plan(schedule, due_at, now, OnMissed.ALL, None, one_shot=False)
        emitted.append(step.emit)
        due_at = step.next_run_at
    assert emitted == take(schedule, 251)[-100:]
    assert due_at == START + 251 * MINUTE


@pytest.mark.parametrize("on_missed", OnMissed)
def test_a_one_shot_is_emitted_however_late(on_missed):
    schedule, now = schedule_of(run_at="2026-03-07T00:00:00Z"), START + timedelta(days=365)
    assert plan(schedule, START, now, on_missed, None, one_shot=True) == EmissionPlan(emit=START)
    late = plan(schedule, START, now, on_missed, timedelta(hours=1), one_shot=True)
    assert late == EmissionPlan(passed=(START,), passed_count=1, reason="max_lateness")


def test_missed_occurrences_use_up_count():
    schedule = schedule_of(rrule="FREQ=DAILY;COUNT=3", run_at="2026-03-07T00:00:00Z")
    planned = plan(schedule, START, START + timedelta(days=30), OnMissed.LATEST, None, one_shot=False)
    assert (planned.emit, planned.folded, planned.next_run_at) == (START + timedelta(days=2), 2, None)


def test_on_time_asks_the_schedule_once():
    class Counting:
        calls = 0

        def next_after(self, instant):
            self.calls += 1
            return instant + MINUTE

    schedule = Counting()
    planned = plan(schedule, START, START + GRACE / 2, OnMissed.SKIP, None, one_shot=False)
    assert (planned.emit, planned.next_run_at, schedule.calls) == (START, START + MINUTE, 1)


def test_a_year_of_minutes_is_planned_without_stepping():
    schedule = schedule_of(rrule="FREQ=MINUTELY", run_at="2026-03-07T00:00:00", timezone="America/New_York")
    due_at = schedule.first()
    planned = plan(schedule, due_at, due_at + timedelta(days=365), OnMissed.LATEST, None, one_shot=False)
    # The minutes of the repeated hour do not run twice, and the skipped hour's coincide with the next hour's.
    assert planned.passed_count == 365 * 1440 - 60
    assert len(planned.passed) == 100


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        ("FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=1", 105_643),
        ("FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=1;BYMONTH=1,3;INTERVAL=3", 6_143),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", 24_295),
        ("FREQ=MONTHLY;INTERVAL=7;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1,2", 6_940),
        ("FREQ=MINUTELY;INTERVAL=7;BYHOUR=3,4;BYDAY=MO", 1_795_947),
    ],
)
def test_two_thousand_years_are_counted_by_years(rule, count):
    """The expected numbers come from counting period by period and day by day."""
    schedule = schedule_of(rrule=rule, run_at="0002-01-05T01:00:00", timezone="America/New_York")
    planned = plan(schedule, schedule.first(), utc("2026-09-14T13:00:00Z"), OnMissed.LATEST, None, one_shot=False)
    assert planned.passed_count == count


@pytest.mark.parametrize("on_missed", OnMissed)
def test_a_schedule_that_begins_with_the_calendar_is_planned(on_missed):
    schedule = schedule_of(every="PT1H", run_at="0001-01-01T00:00:00Z")
    now = utc("2026-09-14T13:30:00Z")
    planned = plan(schedule, schedule.first(), now, on_missed, None, one_shot=False)
    due = (now - schedule.first()) // timedelta(hours=1) + 1
    emitted = {OnMissed.SKIP: 0, OnMissed.LATEST: 1, OnMissed.ALL: MAX_MISSED}[on_missed]
    assert planned.passed_count == due - emitted
