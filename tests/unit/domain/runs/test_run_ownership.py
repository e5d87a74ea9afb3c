"""Ownership of a run: a worker that lost it gets `superseded`."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from scheduler.domain.messages import ResultStatus, RunPolicy
from scheduler.domain.runs.result import Result
from scheduler.domain.runs.run import Occurrence, Origin
from scheduler.domain.runs.transitions import apply_result, cancel_run, deliver_run, expire_attempt

EVENT = "0b2c4c1e-7a51-5b0a-8d3e-6b0f8c6d2a10"
T = datetime(2026, 12, 1, 8, tzinfo=UTC)


def begun(work="command.report", **policy):
    occurrence = Occurrence("j", "t", T, Origin.SCHEDULE, RunPolicy(**policy), "{}", work=work)
    return deliver_run(None, EVENT, occurrence, T)


def running(worker, attempt=1):
    return Result(EVENT, attempt, ResultStatus.RUNNING, heartbeat=25.0, worker=worker)


def said(run, result, seconds):
    return apply_result(run, result, T + timedelta(seconds=seconds))


def test_a_started_command_is_superseded_for_a_second_worker():
    run, status = said(begun(), running("a"), 1)
    assert status == "recorded"
    same, status = said(run, running("b"), 2)
    assert (same, status) == (run, "superseded")
    again, status = said(run, running("a"), 5)
    assert (again.worker, status) == ("a", "recorded")
    assert again.alive_until == T + timedelta(seconds=30)


def test_a_command_of_a_lost_worker_may_change_owner():
    run, _ = said(begun(), running("a"), 1)
    taken, status = said(run, running("b"), 27)  # no producer has claimed it since its heartbeat expired
    assert (taken.worker, status) == ("b", "recorded")


@pytest.mark.parametrize("work", [None, "webhook"])
def test_an_event_that_a_host_or_a_webhook_gets_again_may_mean_that_the_first_is_dead(work):
    run, _ = said(begun(work), running("a"), 1)
    taken, status = said(run, running("b"), 2)
    assert (taken.worker, status) == ("b", "recorded")


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_expired_worker_gets_superseded(attempts):
    run, _ = said(begun(max_attempts=attempts), running("a"), 1)
    lost = expire_attempt(run, T + timedelta(seconds=27))
    same, status = said(lost, running("a"), 28)
    assert (same, status) == (lost, "superseded")


def test_cancelling_does_not_interrupt_running_attempts():
    run, _ = said(begun(), running("a"), 1)
    _, status = said(cancel_run(run, T), running("a"), 5)
    assert status == "unchanged"


def test_a_heartbeat_after_its_result_changes_nothing():
    run, _ = said(begun(), running("a"), 1)
    failed, _ = said(run, replace(running("a"), status=ResultStatus.FAILED, heartbeat=None), 2)
    _, status = said(failed, running("a"), 3)
    assert status == "unchanged"
