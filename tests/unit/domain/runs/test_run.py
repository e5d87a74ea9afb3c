"""A run: the same messages in any order and any number end in the same state, and no promise is ever broken."""

import itertools
import json
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cli.show.run import explain
from scheduler.commands.decide_commands import decide_retry
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.messages import ResultStatus, RunPolicy, ScheduleRetry
from scheduler.domain.runs.backoff import backoff, pseudo_random
from scheduler.domain.runs.event import due_body, finished_body
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import (
    FINAL,
    FIRST_KEPT,
    LAST_KEPT,
    MAX_UNANNOUNCED,
    AttemptOutcome,
    FinishedAttempt,
    Occurrence,
    Origin,
    Run,
    RunStatus,
)
from scheduler.domain.runs.transitions import apply_result, cancel_run, deliver_run, expire_attempt, retry_run
from scheduler.domain.runs.unannounced_ends import keep_unannounced_ends
from scheduler.postgres.runs.report import RunReport
from scheduler.views.base import as_json
from scheduler.views.runs import run_view, whole_run_view

EVENT = "0b2c4c1e-7a51-5b0a-8d3e-6b0f8c6d2a10"
JOB = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"
T = datetime(2026, 12, 1, 8, tzinfo=UTC)


def occurrence(**policy):
    return Occurrence(JOB, "test.job", T, Origin.SCHEDULE, RunPolicy(**policy), f'{{"event_id":"{EVENT}"}}')


def begun(**policy):
    return deliver_run(None, EVENT, occurrence(**policy), T)


def result(status, attempt=1, **fields):
    return Result(EVENT, attempt, ResultStatus(status), **fields)


def after(run, *results, now=T):
    for each in results:
        run, _ = apply_result(run, each, now)
    return run


def essence(run):
    """Return the state that must not depend on the order of arrival."""
    ended = [(attempt.attempt, attempt.outcome, attempt.error) for attempt in run.attempts]
    return run.status, run.attempt, run.counted, run.retry_at, run.error, ended


def snoozed(times, run=None):
    """Return a run that was delivered and snoozed so many times more."""
    run = run or begun()
    for _ in range(times):
        run = after(run, result("snoozed", run.attempt, retry_in=0.0))
        run = deliver_run(run, EVENT, run.occurrence, T)
    return run


def test_of_many_attempts_the_first_and_the_last_are_kept_and_the_others_counted():
    run = snoozed(FIRST_KEPT + LAST_KEPT)
    assert [attempt.attempt for attempt in run.attempts] == list(range(1, FIRST_KEPT + LAST_KEPT + 1))
    assert run.attempts_omitted is None
    run = snoozed(400, run)
    assert run.attempt == 501
    kept = [*range(1, FIRST_KEPT + 1), *range(501 - LAST_KEPT, 501)]
    assert [attempt.attempt for attempt in run.attempts] == kept
    assert run.attempts_omitted == 500 - len(kept)
    ended = after(run, result("failed", 501, retry=False))
    assert ended.status is RunStatus.DEAD
    assert (ended.ended_by.attempt, len(ended.attempts) + ended.attempts_omitted) == (501, 501)


def test_a_late_success_of_an_attempt_that_was_left_out_is_kept():
    run = after(snoozed(300), result("succeeded", 150, output='"done"'))
    assert (run.status, run.ended_by.attempt, run.output) == (RunStatus.SUCCEEDED, 150, '"done"')
    assert len(run.attempts) + run.attempts_omitted == 300
    more = after(snoozed(300), result("succeeded", 301))
    assert (more.ended_by.attempt, len(more.attempts) + more.attempts_omitted) == (301, 301)


def test_a_run_with_more_attempts_than_are_kept_shrinks_at_its_next_step():
    """As an earlier release has stored it."""
    snoozed = (AttemptOutcome.SNOOZED, None, None, T, None, None)
    many = tuple(FinishedAttempt(number, *snoozed) for number in range(1, 5001))
    run = replace(begun(), attempt=5001, attempts=many)
    after_it = after(run, result("snoozed", 5001, retry_in=0.0))
    assert len(after_it.attempts) == FIRST_KEPT + LAST_KEPT
    assert len(after_it.attempts) + after_it.attempts_omitted == 5001
    lines = explain(RunReport(after_it, announced=False, producers=1, now=T))
    assert "… 4,901 attempts not shown" in lines
    assert whole_run_view(after_it).attempts_omitted == 4901


@pytest.mark.parametrize("output", ['"long"', "[" * 300 + "]" * 300])
def test_a_truncated_output_is_marked_in_the_views_of_the_run_and_of_its_attempt(output):
    failed = after(begun(max_attempts=2), result("failed", output='"short"'))
    run = after(failed, result("succeeded", 2, output=output, output_cut=True))
    view = json.loads(as_json(whole_run_view(run)))
    assert view["output_cut"] is True
    assert [attempt.get("output_cut") for attempt in view["attempts"]] == [None, True]
    assert "output_cut" not in view["attempts"][0]
    assert "output_cut" not in json.loads(as_json(whole_run_view(failed)))
    assert "output_cut" not in json.loads(as_json(run_view(replace(run, output=None))))


# All possible results of one attempt.

_said = st.sampled_from([
    result("running", heartbeat=5), result("running", worker="a"), result("succeeded"),
    result("failed", error="one"), result("failed", error="two"), result("failed", retry_in=5.0),
    result("failed", retry=False), result("snoozed", retry_in=9.0), result("snoozed", retry_in=7.0),
    result("failed", attempt=9), result("running", attempt=3),
])


@given(st.lists(_said, min_size=1, max_size=4), st.integers(1, 3))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_any_order_and_any_repetition_end_the_same(said, max_attempts):
    run = begun(max_attempts=max_attempts)
    expected = essence(after(run, *said))
    for order in itertools.permutations(said):
        assert essence(after(run, *order, order[0])) == expected


@given(st.lists(_said, min_size=1, max_size=4))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_results_that_come_before_the_producers_own_record_count_all_the_same(said):
    for order in itertools.permutations(said):
        early = after(None, *order)
        assert early.status is RunStatus.EXPECTED
        known = deliver_run(early, EVENT, occurrence(), T)
        assert essence(known) == essence(after(begun(), *said))
        assert known.early == ()


# A whole life, with time.

@st.composite
def _steps(draw):
    kinds = st.sampled_from(["report", "report", "wait", "wake", "cancel", "retry"])
    return [
        (kind, draw(st.integers(1, 4)), draw(_said), draw(st.sampled_from([0.0, 1.0, 6.0, 61.0, 4000.0])))
        for kind in draw(st.lists(kinds, min_size=1, max_size=14))
    ]


@given(_steps(), st.integers(1, 3))
@settings(deadline=None, derandomize=True, max_examples=500)
def test_random_histories_keep_the_invariants(steps, max_attempts):
    run, now, retries = begun(max_attempts=max_attempts, timeout=60, delay=1), T, 0
    for kind, attempt, said, seconds in steps:
        before = run
        if kind == "report":
            run, status = apply_result(run, replace(said, attempt=attempt), now)
            assert (status == "recorded") == (run is not before), (status, before, run)
        elif kind == "wait":
            now += timedelta(seconds=seconds)
        elif kind == "wake":
            run = _woken(run, now)
        elif kind == "cancel":
            run = cancel_run(run, now)
        else:
            retries += 1
            run = retry_run(run, T + timedelta(seconds=retries), now)
        # 7: never more than max_attempts that count, and none before its time.
        assert 0 <= run.counted <= max_attempts
        assert run.attempt >= before.attempt
        if run.status is RunStatus.DELIVERED and run.attempt > before.attempt and kind == "wake":
            assert before.retry_at <= now
        # A success is final.
        assert before.status is not RunStatus.SUCCEEDED or run.status is RunStatus.SUCCEEDED
        # 6: every open run has a wake_at.
        assert run.wake_at is not None
        assert run.open == (run.status not in FINAL)
        numbers = [attempt.attempt for attempt in run.attempts]
        assert numbers == sorted(set(numbers))
    # Left alone, it ends.
    for _ in range(2 * max_attempts + 2):
        now += timedelta(days=8)
        run = _woken(run, now)
    assert run.status in FINAL


def _woken(run, now):
    """Process a run as a producer does."""
    if run.status is RunStatus.WAITING and run.retry_at <= now:
        return deliver_run(run, EVENT, run.occurrence, now)
    return expire_attempt(run, now)


# The policy.

@pytest.mark.parametrize(("policy", "waits"), [
    ({"backoff": "exponential"}, [60, 120, 240, 480]),
    ({"backoff": "linear"}, [60, 120, 180, 240]),
    ({"backoff": "fixed"}, [60, 60, 60, 60]),
    ({"backoff": [1, 2.5]}, [1, 2.5, 2.5, 2.5]),
    ({"backoff": "exponential", "delay": 1000}, [1000, 2000, 3600, 3600]),
    ({"backoff": "fixed", "delay": 0}, [0, 0, 0, 0]),
])
def test_the_wait_before_the_next_attempt(policy, waits):
    found = [backoff(RunPolicy(**policy), failures, EVENT, failures) for failures in range(1, 5)]
    for wait, wanted in zip(found, waits, strict=True):
        assert wanted <= wait <= min(wanted * 1.1, max(3600, wanted))
    if isinstance(policy["backoff"], list):
        assert found == waits


def test_backoff_jitter_is_deterministic_per_run():
    found = {pseudo_random(f"{EVENT[:-2]}{n:02}", 1) for n in range(50)}
    assert len(found) == 50
    assert all(0 <= each < 1 for each in found)
    assert pseudo_random(EVENT, 1) == pseudo_random(EVENT, 1) != pseudo_random(EVENT, 2)


def test_each_attempt_waits_longer_and_the_last_is_dead():
    run, now, waits = begun(max_attempts=4), T, []
    for attempt in range(1, 5):
        run = after(run, result("failed", attempt=attempt, error="no"), now=now)
        if attempt < 4:
            waits.append((run.retry_at - now).total_seconds())
            now = run.retry_at
            run = deliver_run(run, EVENT, run.occurrence, now)
    for wait, wanted in zip(waits, (60, 120, 240), strict=True):
        assert wanted <= wait <= wanted * 1.1
    assert (run.status, run.attempt, run.finished_at) == (RunStatus.DEAD, 4, now)
    assert [attempt.outcome for attempt in run.attempts] == [AttemptOutcome.FAILED] * 4


def test_a_snooze_does_not_count_and_comes_when_asked():
    run = after(begun(max_attempts=1), result("snoozed", retry_in=900.0))
    assert (run.status, run.retry_at) == (RunStatus.WAITING, T + timedelta(minutes=15))
    assert (run.attempt, run.counted) == (1, 0)
    run = deliver_run(run, EVENT, run.occurrence, run.retry_at)
    assert (run.attempt, run.attempts_left) == (2, 0)


def test_attempts_expire_unstarted_overdue_or_lost():
    run = begun(start_timeout=10, timeout=20, max_attempts=9)
    assert expire_attempt(run, T + timedelta(seconds=9)) is run
    late = expire_attempt(run, T + timedelta(seconds=10))
    assert late.attempts[-1].outcome is AttemptOutcome.TIMED_OUT
    at_work = after(run, result("running", worker="w"), now=T + timedelta(seconds=5))
    assert (at_work.started_at, at_work.deadline) == (T + timedelta(seconds=5), T + timedelta(seconds=25))
    # Later heartbeats do not move the deadline.
    again = after(at_work, result("running", heartbeat=3, progress=0.5), now=T + timedelta(seconds=6))
    assert (again.deadline, again.alive_until, again.progress) == (at_work.deadline, T + timedelta(seconds=9), 0.5)
    assert expire_attempt(again, T + timedelta(seconds=9)).attempts == (
        FinishedAttempt(1, AttemptOutcome.LOST, "w", T + timedelta(seconds=5), T + timedelta(seconds=9),
                "the worker missed its heartbeat", None),
    )
    # The newest decides: one without a heartbeat promises nothing.
    quiet = after(again, result("running"), now=T + timedelta(seconds=7))
    assert expire_attempt(quiet, T + timedelta(seconds=20)) is quiet
    assert expire_attempt(quiet, T + timedelta(seconds=25)).attempts[-1].outcome is AttemptOutcome.TIMED_OUT


def test_a_success_counts_whichever_attempt_it_is_of_and_whenever_it_comes():
    dead = after(begun(max_attempts=1), result("failed"))
    assert dead.status is RunStatus.DEAD
    late = after(dead, result("succeeded", output='{"done":true}'))
    assert (late.status, late.output) == (RunStatus.SUCCEEDED, '{"done":true}')
    assert after(cancel_run(begun(), T), result("succeeded")).status is RunStatus.SUCCEEDED
    second = deliver_run(after(begun(delay=0), result("failed")), EVENT, occurrence(), T)
    assert after(second, result("succeeded", attempt=1)).status is RunStatus.SUCCEEDED


def test_a_success_changes_only_the_result_fields():
    early = result("running", attempt=9)
    before = Run(
        EVENT, RunStatus.RUNNING, 3, 2, T, T, T, T, T, None, "a", 0.5, "error", '"o"', True,
        (FinishedAttempt(1, AttemptOutcome.FAILED, "a", T, T, None, None),), None, T, (early,), T, 7, None,
        "producer-1", occurrence(),
    )
    now = T + timedelta(hours=1)
    changed = after(before, result("succeeded", attempt=3, worker="b", output='"done"'), now=now)
    names = [field.name for field in fields(Run)]
    assert {name for name in names if getattr(changed, name) != getattr(before, name)} == {
        "status", "deadline", "alive_until", "retry_at", "finished_at", "worker", "progress", "error", "output",
        "output_cut", "attempts", "decided_by",
    }
    assert changed == replace(
        before, status=RunStatus.SUCCEEDED, deadline=None, alive_until=None, retry_at=None, worker="b",
        progress=None, finished_at=now, error=None, output='"done"', output_cut=False,
        attempts=(*before.attempts,
                  FinishedAttempt(3, AttemptOutcome.SUCCEEDED, "b", T, now, None, '"done"')),
        decided_by=result("succeeded", worker="b", output='"done"').weight(),
    )


def test_late_results_of_earlier_attempts_change_nothing():
    second = deliver_run(after(begun(delay=0), result("failed")), EVENT, occurrence(), T)
    for said in (result("failed", error="late"), result("snoozed", retry_in=1.0), result("running")):
        assert apply_result(second, said, T) == (second, "superseded")
    assert apply_result(second, result("failed", attempt=7), T) == (second, "unchanged")


def test_a_result_of_an_attempt_whose_producer_died_before_it_wrote_that_down():
    waiting = after(begun(delay=0), result("failed"))
    run = after(waiting, result("running", attempt=2))
    assert (run.status, run.attempt, run.counted) == (RunStatus.RUNNING, 2, 2)
    done = after(waiting, result("succeeded", attempt=2))
    assert (done.status, done.attempt) == (RunStatus.SUCCEEDED, 2)


@pytest.mark.parametrize("attempt", [2, 9])
def test_a_result_of_an_attempt_that_was_never_made_is_harmless(attempt):
    waiting, dead = (after(begun(max_attempts=most), result("failed")) for most in (2, 1))
    for run in (begun(), after(begun(), result("running")), waiting, dead):
        for said in ("running", "failed", "snoozed"):
            assert apply_result(run, result(said, attempt=attempt, retry_in=0.0), T) == (run, "unchanged")
        # A success counts all the same, but no more were delivered than were.
        done = after(run, result("succeeded", attempt=attempt))
        assert (done.status, done.attempt, json.loads(finished_body(done))["attempts"]) == ("succeeded", 1, 1)


@given(st.lists(_said, min_size=1, max_size=40))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_early_results_of_an_unknown_event_are_bounded(said):
    early = after(None, *(replace(each, attempt=n % 9 + 1, error=str(n)) for n, each in enumerate(said)))
    assert len(early.early) <= 5
    assert expire_attempt(early, T + timedelta(hours=1)) is early
    assert early.wake_at == T + timedelta(hours=1)


def test_the_newest_running_decides_about_heartbeats_of_an_event_that_is_not_known_yet_too():
    for first, last in ((5, 900), (900, 5)):
        early = after(None, result("running", heartbeat=first), result("running", heartbeat=last))
        run = deliver_run(early, EVENT, occurrence(), T)
        assert run.alive_until == T + timedelta(seconds=last)


def test_a_retry_resets_the_limit_and_continues_the_attempt_number():
    dead = after(begun(max_attempts=1), result("failed"))
    run = retry_run(dead, T, T)
    assert (run.status, run.retry_at, run.counted, run.attempt) == (RunStatus.WAITING, T, 0, 1)
    assert retry_run(replace(run, status=RunStatus.DEAD), T, T).status is RunStatus.DEAD  # not newer than the last
    for other in (begun(), after(begun(), result("succeeded"))):
        assert retry_run(other, T, T) is other
    # A repeated result of the dead attempt does not end the run again.
    assert after(run, result("failed", error="again")) == run


def test_max_delay_caps_computed_backoff_only():
    for kind in ("exponential", "linear", "fixed"):
        policy = RunPolicy(backoff=kind, delay=100, max_delay=100.5)
        found = {backoff(policy, failures, f"{EVENT[:-2]}{n:02}", 1) for failures in (1, 9) for n in range(50)}
        assert max(found) == 100.5  # with a tenth by pseudo_random most would be above
        assert min(found) >= 100
    assert backoff(RunPolicy(backoff=[500], max_delay=1), 1, EVENT, 1) == 500
    for said in (result("failed", retry_in=500.0), result("snoozed", retry_in=500.0)):
        assert after(begun(max_delay=1), said).retry_at == T + timedelta(seconds=500)


def test_a_retry_that_is_not_newer_than_the_last_changes_nothing():
    run = after(begun(max_attempts=1), result("failed"))
    run = after(deliver_run(retry_run(run, T, T), EVENT, run.occurrence, T), result("failed", attempt=2))
    assert (run.status, run.attempt) == (RunStatus.DEAD, 2)
    for issued in (T - timedelta(seconds=1), T):
        assert retry_run(run, issued, T + timedelta(hours=1)) is run
    assert retry_run(run, T + timedelta(microseconds=1), T).status is RunStatus.WAITING


def test_unannounced_ends_limit_retries():
    run = cancel_run(begun(), T)
    for number in range(30):
        after_retry = {EVENT: retry_run(run, T + timedelta(seconds=number), T)}
        if after_retry[EVENT] is run:
            break
        keep_unannounced_ends({EVENT: run}, after_retry)
        run = cancel_run(after_retry[EVENT], T)
    assert len(run.unannounced) == MAX_UNANNOUNCED
    assert {each.status for each in run.unannounced} == {RunStatus.CANCELLED}


@pytest.mark.parametrize(("said", "outcome"), [
    (result("failed", error="no"), "failed"), (result("snoozed", retry_in=1.0), "snoozed"),
])
def test_how_an_attempt_ended_is_recorded_after_a_cancel(said, outcome):
    run = cancel_run(after(begun(), result("running", worker="w")), T)
    ended, status = apply_result(run, said, T)
    assert (ended.status, ended.retry_at, status) == (RunStatus.CANCELLED, None, "recorded")
    [attempt] = ended.attempts
    assert (attempt.attempt, attempt.outcome.value, attempt.worker) == (1, outcome, "w")
    assert apply_result(ended, said, T) == (ended, "unchanged")
    assert apply_result(run, result("running"), T) == (run, "unchanged")
    late = cancel_run(expire_attempt(begun(), T + timedelta(days=1)), T)
    assert apply_result(late, said, T) == (late, "unchanged")  # its deadline has decided it


def test_a_retry_restarts_the_backoff():
    run, waits = begun(max_attempts=2, backoff=[1, 100]), []
    for attempt in range(1, 4):
        run = after(run, result("failed", attempt=attempt))
        if run.status is RunStatus.DEAD:
            run = retry_run(run, T + timedelta(seconds=attempt), T)
        else:
            waits.append(run.retry_at - T)
        run = deliver_run(run, EVENT, run.occurrence, T)
    assert waits == [timedelta(seconds=1)] * 2


def test_durations_are_by_the_workers_clock_where_it_says_so():
    theirs = datetime(2000, 1, 1, tzinfo=UTC)
    run = after(begun(), result("running", started_at=theirs), result("running", started_at=T))
    assert (run.started_at, run.deadline) == (theirs, T + timedelta(seconds=300))  # deadlines are by ours
    ended = after(run, result("succeeded", finished_at=theirs + timedelta(seconds=2)), now=T + timedelta(hours=5))
    assert (ended.duration, ended.finished_at) == (timedelta(seconds=2), T + timedelta(hours=5))
    body = json.loads(finished_body(ended))
    assert (body["started_at"], body["finished_at"]) == (
        "2000-01-01T00:00:00.000000Z", "2000-01-01T00:00:02.000000Z",
    )
    unstarted = after(begun(), result("succeeded", finished_at=theirs), now=T + timedelta(seconds=3))
    assert unstarted.duration == timedelta(seconds=3)  # from the delivery, by our clock
    running = after(begun(), result("running"), now=T + timedelta(seconds=1))
    dead = after(running, result("failed", retry=False), now=T + timedelta(seconds=5))
    assert dead.duration == timedelta(seconds=4)
    assert expire_attempt(begun(max_attempts=1), T + timedelta(days=1)).duration is None  # no worker started it
    assert cancel_run(run, T).duration is None
    wrong = after(run, result("failed", retry=False, finished_at=theirs - timedelta(days=1)))
    assert wrong.duration == timedelta(0)


def test_schedule_finished_has_exactly_these_fields():
    run = after(begun(), result("running", worker="w"), result("failed", error="no", output="[1]", retry=False))
    assert json.loads(finished_body(run)) == {
        "event_id": EVENT, "job_id": JOB, "job_type": "test.job", "due_at": "2026-12-01T08:00:00.000000Z",
        "status": "dead", "attempts": 1, "started_at": "2026-12-01T08:00:00.000000Z",
        "finished_at": "2026-12-01T08:00:00.000000Z", "error": "no", "output": [1],
    }
    quiet = json.loads(finished_body(cancel_run(begun(), T)))
    assert (quiet["status"], quiet["attempts"]) == ("cancelled", 1)
    assert (quiet["started_at"], quiet["error"], quiet["output"]) == (None, None, None)
    late = after(
        deliver_run(after(begun(delay=0), result("failed", error="no")), EVENT, occurrence(), T),
        result("succeeded", attempt=1, output='"x"'),
    )
    body = json.loads(finished_body(late))
    assert (body["status"], body["attempts"], body["error"], body["output"]) == ("succeeded", 2, None, "x")


def test_the_dead_letter_is_the_last_event():
    run = begun()
    body = due_body(run)
    dead = after(run, result("running"), result("failed", retry=False), now=T + timedelta(seconds=9))
    assert (dead.status, due_body(dead)) == (RunStatus.DEAD, body)


def test_the_event_says_which_attempt_it_is_and_the_end_how_it_ended():
    run = begun()
    assert due_body(run).decode() == (
        f'{{"event_id":"{EVENT}","emitted_at":"2026-12-01T08:00:00.000000Z","run":{{"attempt":1,"attempts_left":2,'
        '"max_attempts":3,"deadline":"2026-12-01T09:00:00.000000Z"}}'
    )
    ended = after(run, result("succeeded", output="[1]", output_cut=True))
    assert finished_body(ended).decode().endswith('"error":null,"output":[1],"output_cut":true}')
    assert isinstance(ended, Run)


def test_a_far_future_retry_is_rejected_or_superseded():
    dead = after(begun(max_attempts=1), result("failed"))
    command = ScheduleRetry(event_id=EVENT, issued_at="2090-01-01T00:00:00Z")
    rejected = decide_retry({EVENT: dead}, Incoming(command, EVENT), T)
    assert [problem.field for problem in rejected.problems] == ["issued_at"]
    stored = replace(dead, retried_at=command.issued_at)  # by release 0.2
    assert retry_run(stored, T, T).status is RunStatus.WAITING
    assert retry_run(stored, command.issued_at, T) is stored
