"""A cancel that is undone."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from scheduler.domain.jobs.job import Job, JobStatus, apply
from scheduler.domain.jobs.reinstate import reinstated
from scheduler.domain.message_parser import parse_command

NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
ID = "7d9f3bd0-0000-4000-8000-000000000001"


def after(job: Job | None, kind: str, now: datetime, **fields: object) -> Job:
    body = json.dumps({"id": ID, **fields}).encode()
    return apply(job, parse_command(kind, body, max_payload_bytes=1000), now).job


@pytest.mark.parametrize("paused", [False, True])
def test_the_job_is_as_before_and_can_be_changed_again(paused):
    job = after(None, "request", NOW, job_type="report", every="PT1H", paused=paused)
    cancelled = after(job, "cancel", NOW + timedelta(minutes=5))
    assert cancelled.next_run_at is None
    back = reinstated(cancelled, job.status, job.next_run_at, NOW + timedelta(minutes=9))
    assert (back.status, back.next_run_at, back.occurrence) == (job.status, job.next_run_at, job.occurrence)
    assert (back.paused, back.stopped) == (paused, False)
    assert after(back, "resume", NOW + timedelta(minutes=10)).status is JobStatus.PENDING
    assert after(back, "cancel", NOW + timedelta(minutes=11)).status is JobStatus.CANCELLED


def test_a_late_copy_of_the_cancel_does_not_count_again():
    job = after(None, "request", NOW, job_type="report", every="PT1H")
    at = (NOW + timedelta(minutes=5)).isoformat()
    back = reinstated(after(job, "cancel", NOW + timedelta(minutes=6), issued_at=at), job.status, job.next_run_at,
                      NOW + timedelta(minutes=9))
    assert after(back, "cancel", NOW + timedelta(minutes=10), issued_at=at).status is JobStatus.PENDING


def test_only_a_cancelled_job_is_reinstated():
    job = after(None, "request", NOW, job_type="report", every="PT1H")
    assert reinstated(job, JobStatus.PAUSED, None, NOW) is job
