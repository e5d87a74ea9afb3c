"""Order and idempotence: the final job is the same for every order of arrival and with duplicates."""

import itertools
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

import pytest
from commands import histories
from hypothesis import given, settings

from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import Incoming, content
from scheduler.domain.jobs.emission import event_id
from scheduler.domain.jobs.job import _TRANSITIONS, MAX_TRIGGERS, TRIGGERS_REMEMBERED, Job, JobStatus, apply
from scheduler.domain.messages import COMMAND_MODELS, JobCommand, ScheduleRequest
from scheduler.domain.recurrence import resolve
from scheduler.postgres.jobs.columns import FRESH
from scheduler.postgres.stored_values import read_policy, write_policy

ID = UUID("7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11")
T = datetime(2026, 12, 1, 8, tzinfo=UTC)
NOW = datetime(2027, 1, 1, tzinfo=UTC)


def command(kind, second=None, **fields):
    issued = None if second is None else T + timedelta(seconds=second)
    if kind == "request":
        fields = {"job_type": "a", "run_at": "2027-06-01T00:00:00Z"} | fields
    return COMMAND_MODELS[kind](id=ID, issued_at=issued, **fields)


def applied(*commands, now=NOW):
    job, statuses = Job(str(ID)), []
    for each in commands:
        outcome = apply(job, Incoming(each, str(ID)), now)
        job = outcome.job
        statuses.append(outcome.status)
    return job, statuses


@given(histories())
@settings(deadline=None, derandomize=True)
def test_every_permutation_with_duplicates_ends_the_same(history):
    in_order, _ = applied(*(command(kind, second, **fields) for kind, second, fields in history))
    for order in itertools.permutations(history):
        permuted, _ = applied(*(command(kind, second, **fields) for kind, second, fields in (*order, order[0])))
        assert permuted == in_order


@pytest.mark.parametrize(("commands", "status", "answers"), [
    ([("request", 1)], "pending", ["scheduled"]),
    ([("request", 1), ("request", 1)], "pending", ["scheduled", "unchanged"]),
    ([("request", 2), ("request", 1)], "pending", ["scheduled", "superseded"]),
    ([("request", 1), ("cancel", 2)], "cancelled", ["scheduled", "cancelled"]),
    ([("cancel", 2), ("request", 1)], "cancelled", ["cancelled", "superseded"]),
    ([("request", 2), ("cancel", 1)], "pending", ["scheduled", "superseded"]),
    ([("cancel", 1), ("request", 2)], "pending", ["cancelled", "scheduled"]),
    ([("cancel", 1), ("cancel", 1)], "cancelled", ["cancelled", "unchanged"]),
    ([("request", 1), ("pause", 2)], "paused", ["scheduled", "scheduled"]),
    ([("pause", 2), ("request", 1)], "paused", ["unchanged", "scheduled"]),
    ([("request", 1), ("pause", 2), ("resume", 3)], "pending", ["scheduled"] * 3),
    ([("request", 1), ("resume", 3), ("pause", 2)], "pending", ["scheduled", "unchanged", "unchanged"]),
    ([("request", 1), ("pause", 2), ("request", 3)], "paused", ["scheduled"] * 3),
    ([("request", 3), ("pause", 2)], "paused", ["scheduled"] * 2),
    ([("request", 1), ("pause", 2), ("cancel", 3), ("request", 4)], "pending",
     ["scheduled", "scheduled", "cancelled", "scheduled"]),
    ([("request", 1), ("cancel", 2), ("resume", 3)], "cancelled", ["scheduled", "cancelled", "unchanged"]),
    ([("trigger", 2)], "awaiting", ["unchanged"]),
])
def test_final_states_of_histories(commands, status, answers):
    job, statuses = applied(*(command(*each) for each in commands))
    assert (job.status, statuses) == (status, answers)


def test_without_issued_at_the_order_of_storing_counts():
    assert applied(command("request"), command("cancel"))[0].status == JobStatus.CANCELLED
    assert applied(command("cancel"), command("request"))[0].status == JobStatus.PENDING
    a_moment_ahead = int((NOW - T).total_seconds()) + 3
    assert applied(command("request", a_moment_ahead), command("cancel"))[0].status == JobStatus.CANCELLED
    far_ahead = int((NOW - T).total_seconds()) + 60
    assert applied(command("request", far_ahead), command("cancel"))[1] == ["scheduled", "superseded"]


@pytest.mark.parametrize("kind", ["request", "cancel", "pause", "resume", "trigger"])
def test_a_command_from_the_far_future_is_rejected(kind):
    now = T - timedelta(days=1, seconds=1)
    for job in (None, applied(command("request"), now=now)[0]):
        with pytest.raises(Rejected) as rejected:
            apply(job, Incoming(command(kind, 1), str(ID)), now)
        assert [problem.field for problem in rejected.value.problems] == ["issued_at"]


def test_stamps_of_release_0_2_keep_their_order_and_lose_to_later_commands():
    year = datetime(2090, 1, 1, tzinfo=UTC)
    job, _ = applied(command("request", 1))
    for field in ("requested_at", "triggered_at"):
        stored = replace(job, paused_at=T, **{field: year})
        assert apply(stored, Incoming(command("cancel"), str(ID)), NOW).job.status == JobStatus.CANCELLED
        assert apply(stored, Incoming(command("trigger"), str(ID)), NOW).status == "scheduled"
    later = replace(job, status=JobStatus.CANCELLED, requested_at=year, cancelled_at=year + timedelta(days=1))
    assert apply(later, Incoming(command("pause"), str(ID)), NOW).job.status == JobStatus.CANCELLED
    earlier = replace(job, requested_at=year + timedelta(days=1), cancelled_at=year)
    assert apply(earlier, Incoming(command("trigger"), str(ID)), NOW).job.status == JobStatus.PENDING


def test_each_trigger_counts_once_and_an_older_one_than_the_cancel_does_not():
    job, statuses = applied(command("request", 1), *(command("trigger", second) for second in (3, 2, 3)))
    assert statuses == ["scheduled", "scheduled", "scheduled", "unchanged"]
    assert job.triggers == (T + timedelta(seconds=2), T + timedelta(seconds=3))
    job, statuses = applied(command("cancel", 5), command("request", 6), command("trigger", 4))
    assert (job.triggers, statuses[-1]) == ((), "superseded")


@pytest.mark.parametrize("start", [{"run_at": "2027-06-01T00:00:00Z"}, {"run_at": None, "manual": True}])
@pytest.mark.parametrize("changed", [{}, {"name": "b"}, {"run_at": "2027-07-01T00:00:00Z", "manual": False}])
def test_a_newer_request_keeps_waiting_triggers_in_every_order(start, changed):
    history = [command("request", 1, **start), command("trigger", 2), command("trigger", 3),
               command("request", 4, **start | changed), command("pause", 5)]
    kept = (T + timedelta(seconds=2), T + timedelta(seconds=3))
    for order in itertools.permutations(history):
        job, _ = applied(*order)
        assert (job.status, job.triggers, job.trigger_at) == ("paused", kept, NOW)


def test_a_trigger_of_a_cancelled_job_does_not_wait_for_the_next_request():
    job, statuses = applied(command("request"), command("cancel"), command("trigger"), command("request"))
    assert (job.status, job.triggers, statuses[2]) == ("pending", (), "unchanged")


def test_a_trigger_that_arrives_after_a_newer_one_was_emitted_counts_too():
    job, _ = applied(command("request", 1))
    emitted = replace(job, triggered_at=T + timedelta(seconds=3))
    late = Incoming(command("trigger", 2), str(ID))
    outcome = apply(emitted, late, T + timedelta(seconds=9))
    assert (outcome.status, outcome.job.triggers) == ("scheduled", (T + timedelta(seconds=2),))
    late.repeated = True
    assert apply(emitted, late, T + timedelta(seconds=9)).status == "unchanged"
    # After a day a redelivery could not be told apart from it.
    late.repeated = False
    assert apply(emitted, late, T + TRIGGERS_REMEMBERED + timedelta(seconds=9)).status == "superseded"


def test_a_trigger_beyond_the_limit_is_rejected_and_the_pending_ones_stay():
    pending = tuple(T + timedelta(seconds=number) for number in range(2, 2 + MAX_TRIGGERS))
    job, _ = applied(command("request", 1), command("pause", 1))
    job = replace(job, triggers=pending, trigger_at=NOW)

    with pytest.raises(Rejected, match="1,000 pending triggers"):
        apply(job, Incoming(command("trigger", 5000), str(ID)), NOW)

    again = apply(job, Incoming(command("trigger", 2), str(ID)), NOW)  # a duplicate of a pending one
    assert (again.status, again.job.triggers) == ("unchanged", pending)
    emitted = replace(job, triggers=pending[1:])
    after = apply(emitted, Incoming(command("trigger", 5000), str(ID)), NOW)
    assert (after.status, len(after.job.triggers)) == ("scheduled", MAX_TRIGGERS)


def test_a_trigger_from_a_host_whose_clock_is_ahead_is_due_now():
    ahead = int((NOW - T).total_seconds()) + 3600
    job, _ = applied(command("request", 1), command("trigger", ahead))
    assert job.wake_at == NOW


def test_a_replacement_restarts_the_occurrence_count():
    job, _ = applied(command("request", 1))
    later = apply(
        replace(job, status=JobStatus.DONE, occurrence=7, retries=3),
        Incoming(command("request", 2, run_at="2027-07-01T00:00:00Z"), str(ID)), NOW,
    ).job
    assert (later.status, later.occurrence, later.retries) == (JobStatus.PENDING, 0, 0)
    assert later.next_run_at == resolve(
        run_at="2027-07-01T00:00:00Z", rrule=None, cron=None, every=None, timezone=None, stored_at=NOW
    ).starts_at


def test_an_event_id_is_a_function_of_job_and_due_at():
    assert event_id(str(ID), T) == event_id(str(ID), T)
    assert event_id(str(ID), T) != event_id(str(ID), T + timedelta(microseconds=1))


def test_the_same_request_again_is_unchanged_whenever_it_is_stored_and_whoever_asks():
    daily = command("request", 1, run_at=None, rrule="FREQ=DAILY")
    job, _ = applied(daily)
    outcome = apply(job, Incoming(daily, str(ID), correlation_id="another"), NOW + timedelta(hours=1))
    assert (outcome.status, outcome.job) == ("unchanged", job)


def test_an_event_id_is_a_uuid_of_version_5():
    name = f"{ID}/2026-12-01T08:00:00.000000Z"
    assert event_id(str(ID), T) == str(uuid5(UUID("6f1f4a0e-3c55-5f0b-9d0a-4f0f4c1b7a52"), name))


def asked(**fields):
    return apply(None, Incoming(command("request", 1, **fields), str(ID)), NOW).job.definition


@pytest.mark.parametrize("fields", [
    {"job_type": "b"}, {"rrule": "FREQ=WEEKLY"}, {"rrule": None, "cron": "0 9 * * *"},
    {"rrule": None, "every": 60}, {"timezone": "Europe/Berlin"}, {"on_missed": "skip"}, {"max_lateness": 5},
    {"run_at": "2027-06-02T00:00:00Z"}, {"run": {}}, {"run": {"timeout": 5}},
])
def test_every_request_field_breaks_ties_of_equal_issued_at(fields):
    """One that is forgotten here would leave it to the order of arrival."""
    one, other = (content(asked(rrule="FREQ=DAILY") if plain else asked(**{"rrule": "FREQ=DAILY"} | fields),
                          start_given=True) for plain in (True, False))
    assert one != other


@pytest.mark.parametrize("run", [{}, {"timeout": 5}, {"backoff": [1, 2]}, {"overlap": "wait"}])
def test_a_policy_is_the_same_once_it_is_stored(run):
    """Or of two requests of the same moment the one that comes first would win."""
    new = asked(run=run)
    stored = replace(new, run=read_policy(write_policy(new.run)))
    assert content(stored, start_given=True) == content(new, start_given=True)


def test_every_field_of_a_definition_is_compared_or_known_to_make_no_difference():
    plain = asked(rrule="FREQ=DAILY")
    for field in dataclass_fields(plain):
        if field.name not in {"spec", "correlation_id", "traceparent", "tracestate"}:
            assert content(replace(plain, **{field.name: "another"}), start_given=True) != content(
                plain, start_given=True), field.name


def test_a_job_with_more_state_than_its_request_is_not_fresh():
    """Only a request's columns are stored for a fresh job (`FRESH`); other values would be lost."""
    job, _ = applied(command("request", 1))
    assert job.fresh
    # Only a producer sets the first, on a stored job; the second is set only together with `triggers`.
    elsewhere = {"held_by", "trigger_at", "unsettled"}
    for name in {field.name for field in dataclass_fields(Job)} - {*FRESH, "definition"} - elsewhere:
        other = {"status": JobStatus.PAUSED, "occurrence": 1, "retries": 1, "triggers": (T,)}.get(name, T)
        assert not replace(job, **{name: other}).fresh, name


def test_every_command_has_a_transition_of_its_own():
    """An unknown one must not become any other."""
    about_jobs = {model for model in COMMAND_MODELS.values() if issubclass(model, JobCommand)}
    assert {ScheduleRequest, *_TRANSITIONS} == about_jobs
