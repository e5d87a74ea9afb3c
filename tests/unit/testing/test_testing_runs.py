"""Tracked jobs in the sidecar for hosts' own tests."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from scheduler.client import CommandRejected, GiveUp, Handlers, Snooze, UnknownJobType
from scheduler.testing import InProcessClient, Sidecar

START = datetime(2026, 3, 27, 12, tzinfo=UTC)


@pytest.fixture
def sidecar():
    return Sidecar(START)


def tracked(sidecar, **policy):
    sidecar.request(id=uuid4(), job_type="a", run_at=START, run=policy)
    [event] = sidecar.due()
    return event


def test_a_succeeded_run_is_announced(sidecar):
    event = tracked(sidecar)
    assert (event.run.attempt, event.run.attempts_left, event.run.max_attempts) == (1, 2, 3)
    assert event.run.deadline == START + timedelta(hours=1)
    assert sidecar.result(event.event_id, 1, "running", worker="w").status == "recorded"
    assert sidecar.run(event.event_id).status == "running"
    assert sidecar.result(event.event_id, 1, "succeeded", output={"sent": True}).status == "recorded"
    assert sidecar.result(event.event_id, 1, "succeeded", output={"sent": True}).status == "unchanged"
    [told] = sidecar.finished()
    assert (told.status, told.attempts, told.output) == ("succeeded", 1, {"sent": True})
    sidecar.advance(days=1)
    assert sidecar.finished() == sidecar.due() == []


def test_a_failure_is_retried_after_its_backoff_until_dead(sidecar):
    event = tracked(sidecar, backoff=[10, 20])
    sidecar.result(event.event_id, 1, "failed", error="no")
    sidecar.advance(seconds=9.9)
    assert sidecar.due() == []
    sidecar.advance(seconds=0.1)
    [again] = sidecar.due()
    assert (again.event_id, again.run.attempt, again.run.attempts_left) == (event.event_id, 2, 1)
    assert again.emitted_at == START + timedelta(seconds=10)
    sidecar.result(event.event_id, 2, "failed", error="no")
    sidecar.advance(seconds=20)
    assert sidecar.due()[0].run.attempt == 3
    assert sidecar.result(event.event_id, 2, "failed").status == "superseded"
    sidecar.result(event.event_id, 3, "failed", error="never")
    [told] = sidecar.finished()
    assert (told.status, told.attempts, told.error) == ("dead", 3, "never")
    [dead] = sidecar.take("dead")
    assert json.loads(dead.body)["event_id"] == str(event.event_id)


def test_unstarted_overdue_and_silent_attempts_are_retried(sidecar):
    event = tracked(sidecar, start_timeout=100, timeout=50, backoff=[0], max_attempts=4)
    sidecar.advance(seconds=100)
    assert sidecar.due()[0].run.attempt == 2
    sidecar.result(event.event_id, 2, "running")
    sidecar.advance(seconds=50)
    sidecar.result(event.event_id, 3, "running", heartbeat=5)
    sidecar.advance(seconds=4)
    sidecar.result(event.event_id, 3, "running", heartbeat=5)
    sidecar.advance(seconds=5)
    run = sidecar.run(event.event_id)
    assert [attempt.outcome for attempt in run.attempts] == ["timed_out", "timed_out", "lost"]
    assert [(attempt.finished_at - START).total_seconds() for attempt in run.attempts] == [100, 150, 159]
    sidecar.advance(days=1)
    [told] = sidecar.finished()
    assert (told.status, told.finished_at) == ("dead", START + timedelta(seconds=259))


def test_a_dead_run_is_retried_and_a_cancelled_one_too(sidecar):
    client = InProcessClient(sidecar)
    event = tracked(sidecar, max_attempts=1)
    sidecar.result(event.event_id, 1, "failed")
    assert client.retry(event.event_id, wait=True).status == "scheduled"
    assert sidecar.due()[0].run.attempt == 2
    client.cancel(event.job_id)
    assert [each.status for each in sidecar.finished()] == ["dead", "cancelled"]
    assert sidecar.retry(event.event_id).status == "unchanged"  # not later than the other: the clock is stopped
    sidecar.advance(seconds=1)
    assert sidecar.retry(event.event_id).status == "scheduled"
    assert sidecar.due()[0].run.attempt == 3
    with pytest.raises(CommandRejected, match="event_id"):
        client.retry(uuid4())
    assert sidecar.retry(event.event_id).status == "unchanged"


def test_a_cancel_that_comes_again_leaves_a_retried_run_alone(sidecar):
    job = uuid4()
    sidecar.request(id=job, job_type="a", run_at=START, issued_at=START - timedelta(days=1), run={})
    [event] = sidecar.due()
    assert sidecar.cancel(job, issued_at=START - timedelta(hours=1)).status == "cancelled", "after all events"
    assert sidecar.run(event.event_id).status == "cancelled"
    sidecar.retry(event.event_id)
    assert sidecar.cancel(job, issued_at=START - timedelta(hours=1)).status == "unchanged"
    assert sidecar.cancel(job, issued_at=START - timedelta(hours=2)).status == "superseded"
    assert sidecar.run(event.event_id).status == "delivered"
    assert sidecar.cancel(job).status == "cancelled"
    assert sidecar.run(event.event_id).status == "cancelled"
    assert sidecar.cancel(job).status == "unchanged"


def test_a_result_may_come_before_the_event_and_is_forgotten_where_none_comes(sidecar):
    event_id = uuid4()
    assert sidecar.result(event_id, 1, "succeeded").status == "recorded"
    assert sidecar.run(event_id).status == "expected"
    sidecar.advance(hours=1)
    assert sidecar.run(event_id) is None
    assert sidecar.result(event_id, 0, "snoozed").errors[0].field == "attempt"
    assert len(sidecar.rejected()) == 1


def test_overlap_skip_skips_and_overlap_wait_holds(sidecar):
    skip, wait = uuid4(), uuid4()
    sidecar.request(id=skip, job_type="skip", run_at=START, every=60, run={"overlap": "skip"})
    sidecar.request(id=wait, job_type="wait", run_at=START, every=60, run={"overlap": "wait"})
    sidecar.advance(seconds=150)
    skipping, waiting = sidecar.due()
    assert [each.reason for each in sidecar.missed()] == ["overlap", "overlap"]
    sidecar.result(waiting.event_id, 1, "succeeded")
    [latest] = sidecar.due()
    assert (latest.job_id, latest.due_at, latest.missed) == (wait, START + timedelta(seconds=120), 1)
    sidecar.result(skipping.event_id, 1, "succeeded")
    sidecar.advance(seconds=30)
    assert [event.job_id for event in sidecar.due()] == [skip]


def test_handlers_of_tracked_jobs_are_reported_as_a_runner_does_it(sidecar):
    handlers = Handlers()
    raised = [RuntimeError("away"), Snooze(timedelta(minutes=5)), None]

    @handlers.on_due("a")
    def handle(event):
        error = raised.pop(0)
        if error is not None:
            raise error
        return event.run.attempt

    sidecar.request(id=uuid4(), job_type="a", run_at=START, run={"backoff": [60]})
    assert sidecar.deliver(handlers) == 1
    assert sidecar.deliver(handlers) == 0
    sidecar.advance(minutes=1)
    assert sidecar.deliver(handlers) == 1
    sidecar.advance(minutes=5)
    assert sidecar.deliver(handlers) == 1
    [told] = sidecar.finished()
    assert (told.status, told.attempts, told.output) == ("succeeded", 3, 3)
    run = sidecar.run(told.event_id)
    assert [attempt.outcome for attempt in run.attempts] == ["failed", "snoozed", "succeeded"]
    assert "in handle" in run.attempts[0].error

    raised[:] = [GiveUp("no such invoice")]
    sidecar.request(id=uuid4(), job_type="a", run_at=sidecar.now, run={})
    sidecar.deliver(handlers)
    [told] = sidecar.finished()
    assert (told.status, told.error) == ("dead", "no such invoice")
    sidecar.request(id=uuid4(), job_type="b", run_at=sidecar.now, run={})
    with pytest.raises(UnknownJobType):
        sidecar.deliver(handlers)


def test_async_handlers_are_awaited_also_inside_a_running_loop(sidecar):
    handlers, seen = Handlers(), []

    @handlers.on_due("a")
    async def _(event):
        await asyncio.sleep(0)
        seen.append(event.payload)
        return event.payload

    async def deliver():
        return sidecar.deliver(handlers)

    sidecar.request(id=uuid4(), job_type="a", payload={"n": 1}, run_at=START, run={})
    assert sidecar.deliver(handlers) == 1
    assert sidecar.finished()[0].output == {"n": 1}
    sidecar.request(id=uuid4(), job_type="a", payload={"n": 2}, run_at=sidecar.now)
    assert asyncio.run(deliver()) == 1
    assert seen == [{"n": 1}, {"n": 2}]


def test_a_client_counts_a_timedelta_from_the_sidecars_clock(sidecar):
    InProcessClient(sidecar).schedule(uuid4(), "a", run_at=timedelta(minutes=5))
    sidecar.advance(minutes=5)
    assert [event.due_at for event in sidecar.due()] == [START + timedelta(minutes=5)]


def test_an_expired_attempt_is_not_delivered(sidecar):
    handlers, seen = Handlers(), []
    handlers.on_due("a")(lambda event: seen.append(event.run.attempt))
    sidecar.request(id=uuid4(), job_type="a", run_at=START, run={"start_timeout": 60, "backoff": [0]})
    sidecar.advance(seconds=90)
    assert sidecar.deliver(handlers) == 1
    assert seen == [2]


def test_while_it_is_down_no_attempt_is_made(sidecar):
    event = tracked(sidecar, backoff=[10])
    with sidecar.down():
        sidecar.result(event.event_id, 1, "failed")
        sidecar.advance(hours=1)
        assert sidecar.due() == []
    assert sidecar.due()[0].run.attempt == 2


@pytest.mark.parametrize("seconds", [-1, 4e9, float("nan")])
def test_a_snooze_lasts_as_long_as_the_contract_allows(seconds):
    with pytest.raises(ValueError, match="snooze"):
        Snooze(seconds)
