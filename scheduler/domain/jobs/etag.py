"""A short name for what commands have made of a job so far: emissions do not change it."""

import hashlib

from scheduler.domain.jobs.definition import content
from scheduler.domain.jobs.job import Job


def etag(job: Job) -> str:
    """Return a text that differs after every command that changed the job, and stays the same otherwise.

    A trigger that goes out moves from those that wait to the newest that was emitted; the newest of both stays.
    """
    triggers = (*job.triggers, *(() if job.triggered_at is None else (job.triggered_at,)))
    newest = max(triggers, default=None)
    known = (job.id, job.requested_at, job.cancelled_at, job.paused_at, job.resumed_at, newest)
    asked = () if job.definition is None else content(job.definition, start_given=True)
    return hashlib.sha256(repr((*known, *asked)).encode("utf-8", "surrogatepass")).hexdigest()[:20]
