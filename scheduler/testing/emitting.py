"""The producer's half of the in-process sidecar: what the claim and the settling queries do, on a value."""

from dataclasses import replace
from datetime import timedelta

from scheduler.domain.emission import DueJob, Emission
from scheduler.domain.job import Job, JobStatus


def due_job(job: Job) -> DueJob:
    """Return the row that claim_due.sql would."""
    definition, wake_at = job.definition, job.wake_at
    assert definition is not None  # noqa: S101 - only a defined job is pending
    assert wake_at is not None  # noqa: S101 - and it was chosen by this
    spec = definition.spec
    return DueJob(
        id=str(job.id), job_type=definition.job_type, payload=definition.payload,
        correlation_id=definition.correlation_id, traceparent=definition.traceparent,
        tracestate=definition.tracestate, rrule=spec.rrule, cron=spec.cron, every=spec.every,
        timezone=spec.timezone, dtstart=spec.dtstart, starts_at=spec.starts_at, ends_at=spec.ends_at,
        on_missed=definition.on_missed.value, max_lateness=definition.max_lateness,
        next_run_at=job.next_run_at, occurrence=job.occurrence, retries=job.retries,
        triggers=list(job.triggers), trigger_at=job.trigger_at, requested_at=job.requested_at,
        paused_at=job.paused_at, resumed_at=job.resumed_at, wake_at=wake_at,
    )


def settled(job: Job, emission: Emission) -> Job:
    """Return what settle_triggered.sql, settle_done.sql or settle_next.sql makes of the job."""
    if emission.triggered:
        rest = job.triggers[1:]
        spent = job.next_run_at is None and not rest
        assert job.trigger_at is not None  # noqa: S101 - a trigger was emitted
        return replace(
            job, triggers=rest, triggered_at=job.triggers[0], occurrence=job.occurrence + 1,
            trigger_at=job.trigger_at + timedelta(microseconds=1) if rest else None,
            status=JobStatus.DONE if spent else job.status,
        )
    return replace(
        job, next_run_at=emission.next_run_at, occurrence=job.occurrence + (emission.due_at is not None),
        status=JobStatus.DONE if emission.next_run_at is None else job.status,
    )
