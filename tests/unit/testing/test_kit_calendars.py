"""Jobs with calendars, windows and jitter in the test kit, which plans and emits them as a producer does."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from scheduler.domain.jobs.adjusted import planner_of
from scheduler.domain.jobs.emission import event_id
from scheduler.testing import Sidecar

DE = {"weekend": ["SA", "SU"], "closed": {"2026-12-25": "Christmas Day"}}
MONDAY = datetime(2026, 12, 14, tzinfo=UTC)


@pytest.fixture
def sidecar():
    made = Sidecar(MONDAY)
    assert made.calendar("de", **DE).status == "stored"
    return made


def request(sidecar, **fields):
    job_id = str(uuid4())
    reply = sidecar.request(id=job_id, job_type="a", **fields)
    assert getattr(reply, "status", reply) == "scheduled"
    return job_id


def at(text):
    return datetime.fromisoformat(f"2026-12-{text}:00+00:00")


def due(sidecar):
    return [(event.due_at, event.nominal_at, event.moved, event.missed) for event in sidecar.due()]


def missed(sidecar):
    return [(each.reason, each.missed) for each in sidecar.missed()]


def test_occurrences_on_closed_days_are_skipped_and_reported_at_their_nominal_instant(sidecar):
    request(sidecar, rrule="FREQ=DAILY;COUNT=4", run_at="2026-12-18T09:00:00Z", calendar="de")
    sidecar.advance_to(at("19T08:59"))
    assert due(sidecar) == [(at("18T09:00"), None, None, 0)]
    assert missed(sidecar) == []
    sidecar.advance_to(at("20T10:00"))
    assert missed(sidecar) == [("calendar", [at("19T09:00")]), ("calendar", [at("20T09:00")])]
    sidecar.advance_to(at("22T10:00"))
    assert due(sidecar) == [(at("21T09:00"), None, None, 0)]


def test_moved_occurrences_are_merged_into_the_one_that_stays(sidecar):
    job_id = request(sidecar, rrule="FREQ=DAILY;COUNT=6", run_at="2026-12-23T09:00:00Z", calendar="de",
                     on_closed="next")
    sidecar.advance_to(at("29T00:00"))
    events = sidecar.due()
    assert [(event.due_at, event.missed) for event in events] == [
        (at("23T09:00"), 0), (at("24T09:00"), 0), (at("28T09:00"), 3)]
    assert str(events[-1].event_id) == event_id(job_id, at("28T09:00"))
    assert missed(sidecar) == [("merged", [at("25T09:00"), at("26T09:00"), at("27T09:00")])]
    assert sidecar.job(job_id).status == "done"


@pytest.mark.parametrize(("on_closed", "due_at"), [
    ("next", "28T09:00"), ("previous", "24T09:00"), ("nearest", "24T09:00"), ("next_in_month", "28T09:00"),
])
def test_a_moved_event_names_its_nominal_instant_and_keeps_its_id(sidecar, on_closed, due_at):
    job_id = request(sidecar, run_at="2026-12-25T09:00:00Z", calendar="de", on_closed=on_closed)
    sidecar.advance_to(at("29T00:00"))
    [event] = sidecar.due()
    assert (event.due_at, event.nominal_at, event.moved) == (at(due_at), at("25T09:00"), ["calendar"])
    assert str(event.event_id) == event_id(job_id, at("25T09:00"))


def test_a_window_postpones_and_jitter_delays(sidecar):
    job_id = request(sidecar, rrule="FREQ=DAILY;COUNT=2", run_at="2026-12-18T22:00:00Z", calendar="de", jitter=600,
                     window={"from": "09:00", "to": "18:00"}, on_closed="next")
    assert sidecar.job(job_id).nominal_at == at("18T22:00")
    sidecar.advance_to(at("22T00:00"))
    [event] = sidecar.due()
    assert event.moved == ["window", "jitter"]
    assert at("21T09:00") < event.due_at < at("21T09:10")
    assert event.nominal_at == at("18T22:00")
    sidecar.advance_to(at("23T00:00"))
    [event] = sidecar.due()
    assert (event.moved, event.nominal_at) == (["calendar", "window", "jitter"], at("19T22:00"))


def test_an_occurrence_without_these_effects_has_no_new_fields(sidecar):
    request(sidecar, run_at="2026-12-18T10:00:00Z", calendar="de", window={"from": "09:00", "to": "18:00"})
    sidecar.advance_to(at("19T00:00"))
    [event] = sidecar.take("due")
    assert b"nominal_at" not in event.body


def test_a_late_occurrence_waits_for_the_window(sidecar):
    request(sidecar, rrule="FREQ=DAILY;COUNT=3", run_at="2026-12-14T10:00:00Z", on_missed="latest",
            window={"from": "09:00", "to": "12:00"})
    with sidecar.down():
        sidecar.advance_to(at("15T20:00"))
    sidecar.advance_to(at("16T08:59"))
    assert due(sidecar) == []
    sidecar.advance_to(at("16T09:00"))
    assert due(sidecar) == [(at("15T10:00"), None, None, 1)]
    assert missed(sidecar) == [("latest", [at("14T10:00")])]
    sidecar.advance_to(at("17T00:00"))
    assert due(sidecar) == [(at("16T10:00"), None, None, 0)]


def test_max_lateness_and_skip_apply_at_the_opening(sidecar):
    for fields in ({"max_lateness": 3600}, {"on_missed": "skip"}):
        request(sidecar, every="P1D", run_at="2026-12-14T10:00:00Z", window={"from": "09:00", "to": "12:00"},
                **fields)
    with sidecar.down():
        sidecar.advance_to(at("15T20:00"))
    sidecar.advance_to(at("16T09:30"))
    assert due(sidecar) == []
    assert sorted(missed(sidecar)) == [(reason, [at("14T10:00"), at("15T10:00")])
                                       for reason in ("max_lateness", "skip")]


def test_a_trigger_disregards_calendar_and_window(sidecar):
    job_id = request(sidecar, rrule="FREQ=DAILY", run_at="2026-12-18T09:00:00Z", calendar="de",
                     window={"from": "09:00", "to": "10:00"})
    sidecar.advance_to(at("19T23:00"))
    sidecar.due()
    sidecar.trigger(job_id)
    assert [event[0] for event in due(sidecar)] == [at("19T23:00")]


def test_all_missed_occurrences_are_emitted_in_the_order_of_due_at(sidecar):
    request(sidecar, rrule="FREQ=DAILY;COUNT=8", run_at="2026-12-14T10:00:00Z", on_missed="all", calendar="de")
    with sidecar.down():
        sidecar.advance_to(at("20T00:00"))
    assert [event[0] for event in due(sidecar)] == [at(f"{day}T10:00") for day in range(14, 19)]
    assert missed(sidecar) == [("calendar", [at("19T10:00")])]


def test_an_unknown_calendar_and_a_schedule_that_emits_nothing_are_rejected(sidecar):
    def errors(**fields):
        reply = sidecar.request(id=uuid4(), job_type="a", **fields)
        return [(error.field, error.problem) for error in reply.errors]

    assert errors(run_at="2027-01-01T09:00:00Z", calendar="fr") == [("calendar", "there is no calendar fr")]
    assert errors(run_at="2026-12-25T09:00:00Z", calendar="de")[0][0] == "calendar"
    assert errors(run_at="2027-01-01T09:00:00Z", on_closed="next")[0][0] == "on_closed"
    assert errors(run_at="2027-01-01T09:00:00Z", jitter=86401)[0][0] == "jitter"
    assert errors(run_at="2027-01-01T09:00:00Z", window={"from": "9", "to": "10:00"})[0][0] == "window.from"
    assert errors(run_at="2027-01-01T09:00:00Z", window={"from": "09:00"})[0][0] == "window.to"


def test_a_calendar_of_the_tenant_wins_over_that_of_all_tenants(sidecar):
    sidecar.calendar("fr", tenant="*", closed={"2026-12-15": "all"})
    fields = {"rrule": "FREQ=DAILY;COUNT=2", "run_at": "2026-12-15T09:00:00Z", "calendar": "fr", "tenant": "acme"}
    job_id = request(sidecar, **fields)
    assert sidecar.job(job_id).next_run_at == at("16T09:00")
    sidecar.calendar("fr", tenant="acme")
    assert sidecar.job(job_id).next_run_at == at("15T09:00")


def test_the_same_schedule_in_another_spelling_continues(sidecar):
    fields = {"rrule": "FREQ=DAILY", "run_at": "2026-12-14T09:00:00Z", "calendar": "de"}
    job_id = request(sidecar, **fields, on_closed="skip", jitter=0,
                     window={"from": "09:00", "to": "18:00", "days": ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]})
    sidecar.advance_to(at("15T10:00"))
    assert len(sidecar.due()) == 2
    before = sidecar.job(job_id)
    sidecar.request(id=job_id, job_type="b", **fields, window={"from": "09:00", "to": "18:00"})
    after = sidecar.job(job_id)
    assert (after.next_run_at, after.occurrence, after.definition.job_type) == (before.next_run_at, 2, "b")
    sidecar.request(id=job_id, job_type="b", **fields)
    assert (sidecar.job(job_id).next_run_at, sidecar.job(job_id).occurrence) == (before.next_run_at, 0)
    assert sidecar.due() == []


def test_a_changed_calendar_never_emits_an_occurrence_again(sidecar):
    job_id = request(sidecar, rrule="FREQ=DAILY", run_at="2026-12-18T09:00:00Z", calendar="de",
                     on_closed="previous")
    sidecar.advance_to(at("18T12:00"))
    assert [event.missed for event in sidecar.due()] == [2]  # with Saturday and Sunday
    sidecar.calendar("de")
    assert sidecar.job(job_id).next_run_at == at("21T09:00")
    sidecar.calendar("de", closed={"2026-12-18": "Friday"})
    assert sidecar.job(job_id).next_run_at == at("21T09:00")
    sidecar.advance_to(at("22T12:00"))
    assert [event[0] for event in due(sidecar)] == [at("21T09:00"), at("22T09:00")]


def test_a_reported_occurrence_is_not_emitted_when_its_day_opens(sidecar):
    job_id = request(sidecar, rrule="FREQ=DAILY", run_at="2026-12-18T09:00:00Z", calendar="de")
    sidecar.advance_to(at("19T12:00"))
    assert missed(sidecar) == [("calendar", [at("19T09:00")])]
    sidecar.calendar("de")
    assert sidecar.job(job_id).next_run_at == at("20T09:00")
    sidecar.due()
    sidecar.advance_to(at("20T12:00"))
    assert [event[0] for event in due(sidecar)] == [at("20T09:00")]


def test_an_occurrence_that_a_change_moves_into_the_past_follows_on_missed(sidecar):
    sidecar.calendar("de", weekend=[])
    latest = request(sidecar, rrule="FREQ=WEEKLY", run_at="2026-12-20T09:00:00Z", calendar="de",
                     on_closed="previous")
    skip = request(sidecar, rrule="FREQ=WEEKLY", run_at="2026-12-20T09:00:00Z", calendar="de",
                   on_closed="previous", on_missed="skip")
    sidecar.advance_to(at("19T12:00"))
    sidecar.calendar("de", weekend=["SA", "SU"])
    sidecar.advance(seconds=1)
    events = sidecar.due()
    assert [(event.job_id, event.due_at, event.nominal_at) for event in events] == [
        (UUID(latest), at("18T09:00"), at("20T09:00"))]
    assert [(each.job_id, each.reason) for each in sidecar.missed()] == [(UUID(skip), "skip")]


def test_a_job_that_a_change_leaves_without_occurrences_stays_until_its_last_nominal_instant(sidecar):
    job_id = request(sidecar, rrule="FREQ=DAILY;COUNT=2", run_at="2026-12-17T09:00:00Z", calendar="de")
    sidecar.calendar("de", closed={"2026-12-17": "", "2026-12-18": ""})
    job = sidecar.job(job_id)
    assert (job.status, job.next_run_at) == ("pending", None)
    sidecar.advance_to(at("17T12:00"))
    assert sidecar.job(job_id).status == "pending"
    sidecar.advance_to(at("18T12:00"))
    assert sidecar.job(job_id).status == "done"
    assert missed(sidecar) == [("calendar", [at("17T09:00")]), ("calendar", [at("18T09:00")])]


def test_a_start_may_name_its_zone_but_not_contradict_it(sidecar):
    start = "2026-12-16T09:00:00+01:00[Europe/Berlin]"
    job_id = request(sidecar, run_at=start, window={"from": "10:00", "to": "12:00"})
    assert sidecar.job(job_id).next_run_at == at("16T09:00")
    for fields in ({"run_at": start.replace("+01", "+02")}, {"run_at": start, "timezone": "UTC"}):
        reply = sidecar.request(id=str(uuid4()), job_type="a", **fields)
        assert {error.field for error in reply.errors} <= {"run_at", "timezone"}


def test_jitter_emits_every_occurrence_once(sidecar):
    request(sidecar, every="PT1M", run_at="2026-12-14T00:00:00Z", jitter=3600)
    sidecar.advance(hours=6)
    events = sidecar.due()
    nominals = [event.nominal_at or event.due_at for event in events]
    assert len(set(nominals)) == len(nominals)
    assert set(nominals) >= {MONDAY + timedelta(minutes=minute) for minute in range(5 * 60)}
    assert nominals != sorted(nominals)
    assert [event.due_at for event in events] == sorted(event.due_at for event in events)
    assert all(timedelta(0) <= each.due_at - nominal < timedelta(hours=1)
               for each, nominal in zip(events, nominals, strict=True))


def test_jittered_occurrences_are_emitted_once_while_the_calendar_changes(sidecar):
    request(sidecar, every="PT10M", run_at="2026-12-14T00:00:00Z", jitter=3600, calendar="de", on_closed="next")
    emitted = []
    for hour in range(1, 100):
        sidecar.advance_to(MONDAY + timedelta(hours=hour))
        sidecar.calendar("de", closed={"2026-12-15": "", "2026-12-16": ""} if hour % 3 else {"2026-12-16": ""})
        emitted += [event.event_id for event in sidecar.due()]
    assert len(emitted) == len(set(emitted)) > 200


def test_a_very_long_downtime_is_planned_in_bounded_time(sidecar):
    request(sidecar, every=1, run_at="2026-12-14T00:00:00Z", jitter=60, calendar="de", on_closed="next")
    with sidecar.down():
        sidecar.advance_to(at("18T00:00"))
    [event] = sidecar.due()
    assert event.missed > 300_000
    assert at("18T00:00") - event.due_at < timedelta(seconds=70)


def test_a_reported_occurrence_is_neither_emitted_nor_reported_again_if_all_so_far_were_skipped(sidecar):
    job_id = request(sidecar, rrule="FREQ=DAILY", run_at="2026-12-19T09:00:00Z", calendar="de")
    sidecar.advance_to(at("19T12:00"))
    assert missed(sidecar) == [("calendar", [at("19T09:00")])]
    sidecar.calendar("de")
    assert sidecar.job(job_id).next_run_at == at("20T09:00")
    sidecar.calendar("de", **DE)
    sidecar.advance_to(at("21T12:00"))
    assert missed(sidecar) == [("calendar", [at("20T09:00")])]
    assert [event[0] for event in due(sidecar)] == [at("21T09:00")]


@pytest.mark.parametrize("on_closed", ["skip", "next"])
def test_an_emitted_occurrence_is_not_reported_when_its_day_closes(sidecar, on_closed):
    request(sidecar, rrule="FREQ=DAILY", run_at="2026-12-15T09:00:00Z", calendar="de", on_closed=on_closed)
    sidecar.advance_to(at("16T12:00"))
    assert len(sidecar.due()) == 2
    sidecar.calendar("de", closed={"2026-12-15": "", "2026-12-16": ""})
    sidecar.advance_to(at("17T12:00"))
    assert due(sidecar) == [(at("17T09:00"), None, None, 0)]
    assert missed(sidecar) == []


def test_of_merged_occurrences_the_emitted_ones_are_not_reported_again(sidecar):
    request(sidecar, rrule="FREQ=DAILY", run_at="2026-12-15T09:00:00Z", calendar="de", on_closed="next")
    sidecar.advance_to(at("16T08:00"))
    assert len(sidecar.due()) == 1
    sidecar.calendar("de", closed={"2026-12-15": "", "2026-12-16": ""})
    sidecar.advance_to(at("17T12:00"))
    assert due(sidecar) == [(at("17T09:00"), None, None, 1)]
    assert missed(sidecar) == [("merged", [at("16T09:00")])]


@pytest.mark.parametrize("on_closed", ["next", "previous"])
def test_a_move_that_reverses_the_times_of_two_days_loses_neither(sidecar, on_closed):
    request(sidecar, rrule="FREQ=HOURLY;INTERVAL=13;COUNT=2", run_at="2026-12-19T20:00:00Z", calendar="de",
            on_closed=on_closed)
    sidecar.advance(days=10)
    assert [event[1] for event in due(sidecar)] == [at("20T09:00"), at("19T20:00")]


def test_waiting_occurrences_are_not_lost_when_a_later_one_was_reported(sidecar):
    request(sidecar, rrule="FREQ=DAILY", run_at="2026-12-18T20:00:00Z", calendar="de",
            window={"from": "09:00", "to": "18:00"})
    sidecar.advance_to(at("20T12:00"))
    assert missed(sidecar) == [("calendar", [at("19T20:00")])]
    sidecar.calendar("de", weekend=["SU"])
    sidecar.advance_to(at("21T12:00"))
    assert [event[:2] for event in due(sidecar)] == [(at("19T09:00"), at("18T20:00"))]
    assert missed(sidecar) == [("calendar", [at("20T20:00")])]


def test_another_calendar_in_a_request_repeats_nothing(sidecar):
    fields = {"rrule": "FREQ=DAILY", "run_at": "2026-12-17T09:00:00Z"}
    job_id = request(sidecar, **fields, calendar="de")
    sidecar.advance_to(at("19T12:00"))
    assert (len(sidecar.due()), missed(sidecar)) == (2, [("calendar", [at("19T09:00")])])
    sidecar.calendar("fr", closed={"2026-12-18": "", "2026-12-20": ""})
    sidecar.request(id=job_id, job_type="a", **fields, calendar="fr")
    sidecar.advance_to(at("20T12:00"))
    assert (due(sidecar), missed(sidecar)) == ([], [("calendar", [at("20T09:00")])])
    sidecar.request(id=job_id, job_type="a", **fields)
    assert sidecar.job(job_id).next_run_at == at("21T09:00")


def test_a_resume_just_after_the_window_waits_for_the_next_opening(sidecar):
    job_id = request(sidecar, run_at="2026-12-14T17:59:58Z", window={"from": "09:00", "to": "18:00"})
    sidecar.advance_to(at("14T17:00"))
    sidecar.pause(job_id)
    sidecar.advance_to(datetime(2026, 12, 14, 18, 0, 1, tzinfo=UTC))
    sidecar.resume(job_id)
    assert sidecar.due() == []
    sidecar.advance_to(at("15T09:00"))
    assert [event[0] for event in due(sidecar)] == [datetime(2026, 12, 14, 17, 59, 58, tzinfo=UTC)]


# A job that fires thousands of times a day, on Friday 18 December at noon

NOON, STEP = at("18T12:00"), timedelta(seconds=20)


def request_frequent(sidecar, on_closed):
    """Store a job that fires every 20 seconds of Friday, and emit what is due until noon."""
    fields = {"every": 20, "run_at": "2026-12-18T00:00:00Z", "calendar": "de", "on_closed": on_closed}
    job_id = request(sidecar, **fields)
    with sidecar.down():
        sidecar.advance_to(NOON)
    [event] = sidecar.due()
    sidecar.missed()
    return job_id, event.missed


@pytest.mark.parametrize("on_closed", ["previous", "nearest"])
def test_no_occurrence_of_a_frequent_job_is_lost_if_later_ones_were_merged(sidecar, on_closed):
    merged_days = 3 if on_closed == "previous" else 2  # Sunday's move to Monday
    job_id, number = request_frequent(sidecar, on_closed)
    assert number == merged_days * 2161 - 1
    sidecar.calendar("de")
    job = sidecar.job(job_id)
    assert job.next_run_at == NOON + STEP
    planner = planner_of(job, job.requested.spec, sidecar._find_calendar("default", "de"))
    shown = next(planner.after(at("19T00:00")))
    assert (shown.due_at, shown.merged) == (NOON + timedelta(days=1) + STEP, 0)
    with sidecar.down():
        sidecar.advance_to(at("19T11:59"))
    assert due(sidecar) == [(at("19T00:00") - STEP, None, None, 2158)]
    assert sidecar.job(job_id).next_run_at == NOON + timedelta(days=1) + STEP


def test_occurrences_of_a_frequent_job_that_come_to_emitted_instants_are_not_emitted(sidecar):
    sidecar.calendar("de")
    job_id, number = request_frequent(sidecar, "previous")
    assert number == 2160
    sidecar.calendar("de", **DE)
    assert sidecar.job(job_id).next_run_at == NOON + STEP
    sidecar.advance(seconds=60)
    assert due(sidecar) == [(NOON + number * STEP, None, None, 2) for number in (1, 2, 3)]


def test_occurrences_of_closed_days_are_in_no_count_of_missed_ones(sidecar):
    job_id, _ = request_frequent(sidecar, "skip")
    with sidecar.down():
        sidecar.advance_to(at("21T12:00"))
    assert due(sidecar) == [(at("21T12:00"), None, None, 2 * 2160 - 1)]
    assert sidecar.job(job_id).next_run_at == at("21T12:00") + STEP


def test_missed_occurrences_of_a_frequent_job_with_a_window_are_counted(sidecar):
    window = {"from": "08:00", "to": "12:00"}
    request(sidecar, every=10, run_at="2026-12-18T00:00:00Z", calendar="de", window=window)
    sidecar.advance_to(at("18T08:00"))
    assert [event.missed for event in sidecar.due()] == [2880]
    with sidecar.down():
        sidecar.advance_to(at("21T09:00"))
    # The rest of Friday's window, its evening, Monday's night, and an hour of Monday's window.
    assert [event.missed for event in sidecar.due()] == [1439 + 4320 + 2880 + 361 - 1]
