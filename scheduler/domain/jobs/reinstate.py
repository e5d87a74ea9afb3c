"""Undo a cancel: the job continues as before."""

from dataclasses import replace
from datetime import datetime

from scheduler.domain.jobs.job import Job, JobStatus, issued_after_stored


def reinstated(job: Job, status: JobStatus, next_run_at: datetime | None, now: datetime) -> Job:
    """Return a cancelled job with the status and the next run that it had; another job unchanged.

    Occurrences that passed since the cancel are treated as late. The next replanning applies the job's calendar.
    """
    if job.status is not JobStatus.CANCELLED or job.definition is None or not job.stopped:
        return job
    issued = issued_after_stored(job, now)
    paused = status is JobStatus.PAUSED
    return replace(
        job, status=JobStatus.PAUSED if paused else JobStatus.PENDING, requested_at=issued,
        paused_at=issued if paused else job.paused_at, next_run_at=next_run_at,
        calendar_revision=None if job.definition.spec.calendar else job.calendar_revision,
    )
