"""The occurrences of the coming seven days by hour."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from scheduler.api.console.load_ahead import HOURS, compute_load
from scheduler.domain.caller import UNVERIFIED_CALLER
from scheduler.domain.jobs.job import Job, apply
from scheduler.domain.message_parser import parse_command
from scheduler.postgres.jobs.load_rows import LoadRows

START = datetime(2026, 11, 20, 9, tzinfo=UTC)


def a_job(number: int = 0, **fields: object) -> Job:
    body = {"id": f"00000000-0000-4000-8000-{number:012}", "job_type": "report", **fields}
    incoming = parse_command("request", json.dumps(body).encode(), max_payload_bytes=1000)
    incoming.caller = UNVERIFIED_CALLER
    return apply(None, incoming, START).job


def expected(job: Job) -> list[int]:
    """Count one occurrence after the other."""
    hours = [0] * HOURS
    instant = job.next_run_at
    step = job.requested.spec.every
    while instant is not None and step is not None and instant < START + timedelta(hours=HOURS):
        hours[(instant - START) // timedelta(hours=1)] += 1
        instant += step
    return hours


@pytest.mark.parametrize(("first", "every"), [
    ("2026-11-20T09:00:00Z", "PT10M"), ("2026-11-20T10:07:00Z", "PT25M"), ("2026-11-20T09:00:00Z", "PT1H"),
    ("2026-11-20T11:30:00Z", "PT90M"), ("2026-11-21T00:00:00Z", "P1D"), ("2026-11-20T09:59:59Z", "PT7S"),
    ("2026-12-20T09:00:00Z", "P1D"),
])
def test_an_interval_is_counted_without_its_occurrences(first, every):
    job = a_job(run_at=first, every=every)
    load = compute_load(LoadRows([job], {}), START)
    assert (list(load.hours), load.exact) == (expected(job), True)


def test_rules_and_one_shots_are_counted_one_by_one():
    jobs = [a_job(1, cron="30 9 * * 1-5"), a_job(2, run_at="2026-11-20T12:00:00Z", job_type="once")]
    load = compute_load(LoadRows(jobs, {}), START)
    assert {hour: number for hour, number in enumerate(load.hours) if number} == {0: 1, 3: 1, 72: 1, 96: 1, 120: 1,
                                                                                  144: 1}
    assert load.types == [("report", 5), ("once", 1)]
    assert [job.job_type for job, _ in load.of_hour(3)] == ["once"]


def test_a_dense_rule_goes_on_at_its_rate_and_is_an_estimate():
    load = compute_load(LoadRows([a_job(cron="* * * * *")], {}), START)
    assert not load.exact
    assert all(59 <= number <= 61 for number in load.hours)


def test_each_job_of_a_sample_stands_for_several():
    load = compute_load(LoadRows([a_job(run_at="2026-11-20T12:00:00Z")], {}, scale=250.0), START)
    assert (load.hours[3], load.exact) == (250, False)
