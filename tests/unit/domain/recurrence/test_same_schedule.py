"""A request with an unchanged schedule keeps the job's progress; a different schedule restarts it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.emission import decide, event_id
from scheduler.domain.jobs.job import JobStatus, apply
from scheduler.domain.messages import COMMAND_MODELS
from scheduler.domain.recurrence import resolve, same_schedule

ID = UUID("7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11")
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
REACHED = datetime(2026, 11, 19, 9, tzinfo=UTC)
SCHEDULES = {
    "run_at": {"run_at": "2026-11-18T09:00:00Z"},
    "rrule": {"run_at": "2026-01-01T09:00:00Z", "rrule": "FREQ=DAILY"},
    "rrule without start": {"rrule": "FREQ=DAILY"},
    "cron": {"cron": "0 9 * * *"},
    "every": {"every": 86400},
}


def request(job=None, at=NOW, **fields):
    command = COMMAND_MODELS["request"](id=ID, **{"job_type": "a"} | fields)
    return apply(job, Incoming(command, str(ID)), at)


def command(kind, job, at=NOW, **fields):
    return apply(job, Incoming(COMMAND_MODELS[kind](id=ID, **fields), str(ID)), at)


def reached(job):
    """Return the job after some occurrences; a one-shot is done then."""
    if job.definition.spec.one_shot:
        return replace(job, status=JobStatus.DONE, next_run_at=None, occurrence=1)
    return replace(job, next_run_at=REACHED, occurrence=7)


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("change", [
    {"name": "another"}, {"payload": {"n": 2}}, {"on_missed": "all"}, {"max_lateness": 60}, {"run": {}}, {},
], ids=str)
def test_changing_anything_else_keeps_next_run_occurrence_and_done(schedule, change):
    job = reached(request(**schedule).job)
    outcome = request(job, NOW + timedelta(hours=1), **schedule | change)
    assert outcome.status == "scheduled"
    after = outcome.job
    assert (after.status, after.next_run_at, after.occurrence) == (job.status, job.next_run_at, job.occurrence)
    assert after.definition.spec == job.definition.spec
    assert after.requested_at == NOW + timedelta(hours=1)


@pytest.mark.parametrize(("stored", "requested"), [
    ({"run_at": "2026-12-01T08:00:00Z"}, {"run_at": "2026-12-01T09:00:00.000+01:00"}),
    ({"run_at": "2026-12-01T08:00:00Z"}, {"run_at": "2026-12-01T08:00:00", "timezone": "UTC"}),
    ({"every": "PT15M"}, {"every": 900}),
    ({"every": "PT15M", "timezone": "UTC"}, {"every": "900.0"}),
    ({"rrule": "FREQ=DAILY"}, {"rrule": "RRULE:freq=daily;INTERVAL=1;WKST=MO"}),
    ({"rrule": "FREQ=WEEKLY;BYDAY=MO,TU"}, {"rrule": "BYDAY=TU,MO;FREQ=WEEKLY"}),
    ({"run_at": "2026-12-01T09:00:00", "timezone": "Europe/Berlin", "rrule": "FREQ=DAILY"},
     {"rrule": "DTSTART;TZID=Europe/Berlin:20261201T090000\nRRULE:FREQ=DAILY"}),
    ({"run_at": "2026-12-01T09:00:00", "timezone": "Europe/Berlin", "rrule": "FREQ=DAILY"},
     {"run_at": "2026-12-01T08:00:00Z", "timezone": "Europe/Berlin", "rrule": "FREQ=DAILY"}),
    ({"rrule": "FREQ=DAILY\nEXDATE:20261224T090000Z,20261225T090000Z"},
     {"rrule": "EXDATE:20261225T090000Z\nEXDATE:20261224T090000Z\nRRULE:FREQ=DAILY"}),
    ({"cron": "@daily"}, {"cron": " 0  0 * * *"}),
    ({"cron": "0 9 * * MON-FRI"}, {"cron": "0 9 * * 1,2,3,4,5"}),
    ({"cron": "0 9 * * 5L,1#2"}, {"cron": "0 9 * * MON#2,5L"}),
], ids=str)
def test_values_are_compared_and_not_texts(stored, requested):
    one, other = (spec(**each) for each in (stored, requested))
    assert same_schedule(one, other)
    assert same_schedule(other, one)


@pytest.mark.parametrize(("stored", "requested"), [
    ({"run_at": "2026-12-01T08:00:00Z"}, {"run_at": "2026-12-01T08:00:00.000001Z"}),
    ({"run_at": "2026-12-01T08:00:00Z"}, {"run_at": "2026-12-01T08:00:00Z", "every": 60}),
    ({"every": 900}, {"every": 901}),
    ({"every": 900, "run_at": "2026-12-01T08:00:00Z"}, {"every": 900}),
    ({"cron": "0 9 * * *"}, {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}),
    ({"cron": "0 9 1-31 * 1"}, {"cron": "0 9 * * 1"}),
    ({"rrule": "FREQ=DAILY"}, {"rrule": "FREQ=DAILY;COUNT=5"}),
    ({"rrule": "FREQ=DAILY"}, {"rrule": "FREQ=DAILY\nRDATE:20261224T090000Z"}),
    ({"rrule": "FREQ=DAILY"}, {"cron": "0 9 * * *"}),
], ids=str)
def test_a_different_value_is_a_different_schedule(stored, requested):
    assert not same_schedule(spec(**stored), spec(**requested))


def spec(**fields):
    names = ("run_at", "rrule", "cron", "every", "timezone")
    return resolve(**dict.fromkeys(names) | fields, stored_at=NOW)


def test_a_row_of_release_0_2_keeps_its_start():
    job = request(every=60).job
    job.definition.spec.start_source = None
    after = request(job, NOW + timedelta(seconds=90), every=60, name="another").job
    assert after.definition.spec.starts_at == NOW


def test_a_cancelled_job_starts_anew():
    job = reached(request(**SCHEDULES["rrule"]).job)
    cancelled = command("cancel", job).job
    after = request(cancelled, NOW + timedelta(hours=1), **SCHEDULES["rrule"]).job
    assert (after.status, after.occurrence) == (JobStatus.PENDING, 0)
    assert after.next_run_at == datetime(2026, 1, 1, 9, tzinfo=UTC)


def test_a_paused_job_stays_paused_whatever_is_requested():
    job = command("pause", reached(request(**SCHEDULES["rrule"]).job)).job
    same = request(job, NOW + timedelta(hours=1), **SCHEDULES["rrule"], name="b").job
    assert (same.status, same.next_run_at) == (JobStatus.PAUSED, REACHED)
    other = request(job, NOW + timedelta(hours=1), every=60).job
    assert other.status == JobStatus.PAUSED
    resumed = command("resume", same, NOW + timedelta(hours=2)).job
    assert (resumed.status, resumed.missed_before) == (JobStatus.PENDING, NOW + timedelta(hours=2))


def test_a_refused_event_is_retried_at_once_after_a_request():
    job = replace(reached(request(**SCHEDULES["rrule"]).job), retries=5, retry_at=NOW + timedelta(seconds=60))
    after = request(job, NOW + timedelta(seconds=1), **SCHEDULES["rrule"], route="fixed").job
    assert (after.retries, after.retry_at, after.wake_at) == (0, None, REACHED)


def test_a_waiting_trigger_keeps_a_finished_job_pending():
    job = reached(request(**SCHEDULES["run_at"]).job)
    waiting = command("trigger", job, NOW).job
    for changes in ({"name": "b"}, {"run_at": "2026-11-17T09:00:00Z"}):
        after = request(waiting, NOW + timedelta(hours=1), **SCHEDULES["run_at"] | changes).job
        assert (after.status, after.triggers) == (JobStatus.PENDING, waiting.triggers)
    same = request(waiting, NOW + timedelta(hours=1), **SCHEDULES["run_at"], name="b").job
    cancelled = command("cancel", same, NOW + timedelta(hours=1), issued_at=NOW + timedelta(minutes=1)).job
    assert (cancelled.status, cancelled.wake_at) == (JobStatus.DONE, None)  # the cancel is older than the request


@pytest.mark.parametrize("on_missed", ["latest", "all", "skip"])
@pytest.mark.parametrize(("rule", "following"), [
    ("FREQ=DAILY;BYDAY=MO,TU,WE", datetime(2026, 11, 23, 9, tzinfo=UTC)),
    ("FREQ=DAILY\nEXDATE:20261119T090000Z", datetime(2026, 11, 20, 9, tzinfo=UTC)),
])
def test_a_changed_rule_goes_on_after_what_it_shares_with_the_old_one(on_missed, rule, following):
    job = reached(request(**SCHEDULES["rrule"]).job)
    after = request(job, NOW + timedelta(hours=1), **SCHEDULES["rrule"] | {"rrule": rule}, on_missed=on_missed).job
    assert (after.next_run_at, after.occurrence) == (following, 0)


def test_all_goes_on_after_the_newest_shared_occurrence():
    job = reached(request(**SCHEDULES["rrule"]).job)
    after = request(job, **SCHEDULES["rrule"] | {"rrule": "FREQ=HOURLY"}, on_missed="all").job
    assert after.next_run_at == datetime(2026, 11, 18, 10, tzinfo=UTC)


def test_a_changed_schedule_emits_what_the_old_one_has_not():
    daily = request(**SCHEDULES["rrule"]).job
    assert request(daily, **SCHEDULES["rrule"] | {"rrule": "FREQ=WEEKLY"}).job.next_run_at == daily.next_run_at
    done = reached(request(**SCHEDULES["run_at"]).job)
    earlier = request(done, run_at="2026-11-18T08:00:00Z").job
    assert (earlier.status, earlier.next_run_at) == (JobStatus.PENDING, datetime(2026, 11, 18, 8, tzinfo=UTC))
    same_instant = request(done, **SCHEDULES["run_at"], timezone="Europe/Berlin").job
    assert same_instant.status == JobStatus.DONE


@pytest.mark.parametrize("year", ["0001", "9999"])
def test_a_start_at_the_edge_of_time_can_be_replaced(year):
    job = request(run_at=f"{year}-01-01T00:00:00Z").job
    assert request(job, run_at=f"{year}-01-01T00:00:00Z", rrule="FREQ=DAILY").status == "scheduled"


@pytest.mark.parametrize("schedule", [
    {"run_at": "2026-11-18T12:00:00Z"}, {"run_at": "2026-11-18T09:00:00Z", "rrule": "FREQ=HOURLY"},
])
def test_a_trigger_at_the_instant_of_an_occurrence_has_an_event_id_of_its_own(schedule):
    job = request(at=NOW - timedelta(days=1), **schedule).job
    triggered = command("trigger", job, NOW + timedelta(hours=1), issued_at=NOW).job
    emission = decide(triggered, NOW + timedelta(hours=1))
    assert (emission.triggered, emission.due_at) == (True, NOW)
    assert emission.event_id != event_id(str(ID), NOW)
    assert emission.event_id == decide(triggered, NOW + timedelta(hours=2)).event_id
    between = command("trigger", job, NOW + timedelta(hours=1), issued_at=NOW + timedelta(seconds=1)).job
    assert decide(between, NOW + timedelta(hours=1)).event_id == event_id(str(ID), NOW + timedelta(seconds=1))
