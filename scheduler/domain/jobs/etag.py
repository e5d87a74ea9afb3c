"""Compute the ETag of a job, which only commands change."""

import hashlib

from scheduler.domain.jobs.definition import content
from scheduler.domain.jobs.job import Job


def etag(job: Job) -> str:
    """Return a tag that differs after every command that changed the job.

    An emitted trigger moves from `triggers` to `triggered_at`; the newest of both stays the same.
    """
    triggers = (*job.triggers, *(() if job.triggered_at is None else (job.triggered_at,)))
    newest = max(triggers, default=None)
    state = (job.id, job.requested_at, job.cancelled_at, job.paused_at, job.resumed_at, newest)
    definition = () if job.definition is None else content(job.definition, start_given=True)
    return hashlib.sha256(repr((*state, *definition)).encode("utf-8", "surrogatepass")).hexdigest()[:20]
