"""A job as people see it: its request's fields as stored, and where it stands."""

import json
from typing import Any, Literal, get_args
from uuid import UUID

from pydantic import Field, SerializeAsAny

from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.definition import Definition
from scheduler.domain.jobs.etag import etag
from scheduler.domain.messages import DEFAULT_TENANT, Instant, Priority, RunPolicy
from scheduler.domain.recurrence import Spec, zone
from scheduler.domain.target_credentials import mask_target
from scheduler.postgres.jobs.lists import JobRow
from scheduler.views.base import View, seconds, stored

JobState = Literal["pending", "paused", "done", "cancelled"]
JOB_STATES: tuple[JobState, ...] = get_args(JobState)


class JobView(View):
    """One job."""

    id: UUID
    name: str | None
    job_type: str
    tenant: str = DEFAULT_TENANT
    status: JobState
    payload: SerializeAsAny[dict[str, Any]]  # or Verbatim
    run_at: str | None = Field(description="The first run, or the rule's DTSTART: RFC 3339.")
    rrule: str | None
    cron: str | None
    every: float | int | None = Field(description="Seconds.")
    timezone: str
    on_missed: Literal["latest", "all", "skip"]
    max_lateness: float | int | None = Field(description="Seconds.")
    issued_at: Instant | None
    priority: Priority
    route: str | None
    run: RunPolicy | None
    target: dict[str, Any] | None
    next_run_at: Instant | None
    occurrence: int = Field(description="How many were emitted.")
    created_at: Instant
    updated_at: Instant
    created_by: str | None
    updated_by: str | None
    last_due_at: Instant | None
    last_emitted_at: Instant | None
    last_problem: str | None
    last_run_status: str | None


def job_view(row: JobRow) -> JobView:
    """Return the view of a requested job."""
    job, beside = row.job, row.beside
    definition = job.definition
    assert definition is not None  # noqa: S101 - the queries exclude jobs without a request
    spec = definition.spec
    # Skip validation for speed: the values come from the database, and a list has 200 rows.
    return JobView.model_construct(
        id=UUID(job.id), name=definition.name, job_type=definition.job_type, tenant=job.tenant,
        status=job.status.value,
        payload=stored(definition.payload), run_at=_run_at(spec), rrule=spec.rrule, cron=spec.cron,
        every=seconds(spec.every), timezone=spec.timezone, on_missed=definition.on_missed.value,
        max_lateness=seconds(definition.max_lateness), issued_at=job.requested_at,
        priority=definition.priority or Priority.NORMAL, route=definition.route, run=definition.run,
        target=_target(definition),
        next_run_at=job.next_run_at, occurrence=job.occurrence, created_at=beside.created_at,
        updated_at=beside.updated_at, created_by=beside.created_by, updated_by=beside.updated_by,
        last_due_at=beside.last_due_at, last_emitted_at=beside.last_emitted_at, last_problem=beside.last_problem,
        last_run_status=beside.last_run_status,
    )


def job_etag(row: JobRow) -> str:
    """Return the job's ETag with quotes."""
    return f'"{etag(row.job)}"'


def _run_at(spec: Spec) -> str | None:
    """Return the start as an instant, or as wall time if the clocks skip it."""
    if spec.rrule is not None and "DTSTART" in spec.rrule.upper():
        return None  # the rule has it
    if spec.dtstart is not None:
        local = spec.starts_at.astimezone(zone(spec.timezone)).replace(tzinfo=None)
        if local != spec.dtstart:
            return spec.dtstart.isoformat()
    return rfc3339(spec.starts_at)


def _target(definition: Definition) -> dict[str, Any] | None:
    if definition.target is None:
        return None
    return mask_target(json.loads(definition.target))
