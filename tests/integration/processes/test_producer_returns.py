"""Rows that a producer settles are claimed again on time, regardless of the poll interval."""

import time
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta
from itertools import count
from types import SimpleNamespace

import pytest
from support import DEADLINE, iso, until, utc

from scheduler.emitting.batch import Batch
from scheduler.emitting.poll_schedule import LowWatermark, PollSchedule
from scheduler.emitting.sources.jobs import DueJobs
from scheduler.emitting.sources.runs import DueRuns
from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession
from scheduler.rabbit.event_publisher import EventPublisher
from scheduler.rabbit.link import Link
from scheduler.rabbit.slow_routes import SlowRoutes

SLOW = {"SCHEDULER_POLL_INTERVAL_MS": "60000"}


def lateness(event):
    due, emitted = (datetime.fromisoformat(event[name]) for name in ("due_at", "emitted_at"))
    return (emitted - due).total_seconds()


@contextmanager
def opened(url):
    link = Link(url, "test")
    yield link
    link.close()


def test_a_recurring_job_is_on_time_regardless_of_the_poll_interval(sidecar, host):
    """The claim finds the next due row before the job's next run is stored: the producer slept too long."""
    sidecar.up(**SLOW)
    host.request(run_at=iso(utc(seconds=0.5)), every=1)
    missed = [event["missed"] for event in host.due(6)]
    # A producer that sleeps for the whole interval misses seven each time; a busy machine sometimes misses one.
    assert 0 in missed[1:], missed


def test_a_refused_event_is_retried_on_time(sidecar, host):
    sidecar.start("producer", **SLOW).ready()

    def seconds_to_the_retry():
        host.channel.queue_unbind("mainapp_due", "schedule.events", "due")
        [job] = sidecar.sql("INSERT INTO jobs (id, job_type, next_run_at) VALUES (gen_random_uuid(), 'a', now()) "
                            "RETURNING id")
        sidecar.sql("SELECT pg_notify('scheduler_wakeup', '')")
        until(lambda: sidecar.job(job["id"])["retries"], "the refusal")
        host.channel.queue_bind("mainapp_due", "schedule.events", "due")
        return lateness(host.due()[0])

    # The first retry is due after a second, the second after two more. A producer that sleeps for the whole
    # interval is later every time, a busy machine sometimes.
    until(lambda: seconds_to_the_retry() < 7, "a retry in time", within=2 * DEADLINE)


def test_rows_released_by_a_dead_replica_are_found_in_time(sidecar, host):
    """Promise 4 allows 30 s; the poll interval is a minute."""
    sidecar.start("producer", **SLOW).ready()
    [job] = sidecar.sql("INSERT INTO jobs (id, job_type, next_run_at) VALUES (gen_random_uuid(), 'a', now()) "
                        "RETURNING id")
    assert host.due(within=50)[0]["job_id"] == job["id"]


def test_a_job_settled_while_another_batch_is_in_flight_is_not_left_below_the_watermark(sidecar, amqp_url):
    """Batches overlap: the second is claimed, and raises the watermark, before the first is settled."""
    sidecar.sql("INSERT INTO jobs (id, job_type, every, starts_at, next_run_at) SELECT gen_random_uuid(), 'one', "
                "interval '1 second', at, at FROM (SELECT now() - interval '0.5 seconds') AS given (at)")
    sidecar.sql("INSERT INTO jobs (id, job_type, next_run_at) VALUES (gen_random_uuid(), 'second', "
                "now() + interval '0.8 seconds')")
    schedule = PollSchedule(DueJobs(), poll=60.0)
    watermark = schedule.watermark
    with opened(amqp_url) as link, ExitStack() as stack:
        sessions = [stack.enter_context(closing(ClaimSession(sidecar.database_url, f"test {n}"))) for n in (1, 2)]
        publisher = EventPublisher(link, SlowRoutes())
        first = Batch.claimed(schedule.source, sessions[0], 1, watermark.bounds())
        schedule.claimed(first)
        first.publish(publisher)
        batches = (Batch.claimed(schedule.source, sessions[1], 1, watermark.bounds()) for _ in count())
        second = until(lambda: None if (batch := next(batches)).empty else batch, "the second due")
        schedule.claimed(second)
        assert watermark.bounds()[1] == second.resume_from[1]
        due_again = first.settle()
        schedule.settled(first, due_again)
        second.publish(publisher)
        schedule.settled(second, second.settle())
    [row] = sidecar.sql("SELECT wake_at FROM jobs WHERE job_type = 'one'")
    assert due_again == row["wake_at"]
    assert max(watermark.bounds()) <= due_again


def test_rows_settled_after_a_later_batch_are_polled_in_time():
    """Urgent batches are settled first; rows of the previous batch may be due again before the next poll."""
    schedule, now = PollSchedule(DueJobs(), poll=60.0), utc()
    first, urgent = (
        Batch(schedule.source, None, Claim([], now, None, (now,) * 3), time.monotonic()) for _ in range(2)
    )
    schedule.claimed(first)
    schedule.claimed(urgent)
    schedule.settled(urgent, None)
    schedule.settled(first, now + timedelta(seconds=1))
    assert schedule.next_poll == first.steady(now + timedelta(seconds=1))


@pytest.mark.parametrize(("seconds_to_next", "pause"), [(None, 2.0), (3600.0, 0.5)])
def test_an_empty_source_is_polled_less_often(monkeypatch, seconds_to_next, pause):
    schedule, now, clock = PollSchedule(DueRuns(), poll=0.5), utc(), time.monotonic()
    monkeypatch.setattr("scheduler.emitting.poll_schedule.time", SimpleNamespace(monotonic=lambda: clock))
    batch = Batch(schedule.source, None, Claim([], now, seconds_to_next, (now,) * 3), clock)
    schedule.claimed(batch)
    schedule.settled(batch, None)
    assert schedule.next_poll == clock + pause


def test_slow_full_scans_become_rarer(monkeypatch):
    """An old snapshot keeps dead entries in the index, and each full scan reads all of them."""
    clock = iter(())
    monkeypatch.setattr("scheduler.emitting.poll_schedule.time", SimpleNamespace(monotonic=lambda: next(clock)))
    watermark, newest = LowWatermark(every=0.5, classes=2), utc()
    for took, pause in ((0.001, 0.5), (0.01, 3.0), (5.0, 8.0)):
        clock = iter((100.0, 100.0, 100.0 + pause - 0.01, 100.0 + pause))
        assert watermark.bounds() == (LONG_AGO, LONG_AGO)
        watermark.rise((newest, newest), took)
        assert watermark.bounds() == (newest, newest)
        assert watermark.bounds() == (LONG_AGO, LONG_AGO)


def test_a_wake_up_lowers_the_watermark_only_to_its_instant():
    watermark, newest = LowWatermark(every=60.0, classes=2), utc()
    watermark.bounds()
    watermark.rise((newest, newest), 0.001)
    watermark.lower(newest + timedelta(seconds=1))
    assert watermark.bounds() == (newest, newest)
    before = newest - timedelta(seconds=1)
    watermark.lower(before)
    assert watermark.bounds() == (before, before)
    watermark.rise((before, newest), 0.001)
    assert watermark.bounds() == (before, newest)
