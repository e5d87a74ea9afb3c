"""Views of jobs: the request's fields as stored, and the current state."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from uuid import UUID

from pydantic import Field, SerializeAsAny, create_model

from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.definition import COPIED_FIELDS, Definition
from scheduler.domain.jobs.etag import etag
from scheduler.domain.jobs.job import Job
from scheduler.domain.messages import DEFAULT_TENANT, Instant, Priority, RunPolicy, ScheduleRequest
from scheduler.domain.recurrence import Spec, zone
from scheduler.domain.recurrence.adjustment_fields import window_fields
from scheduler.domain.targets.target import mask_target
from scheduler.postgres.jobs.lists import JobListColumns, JobRow
from scheduler.views.base import View, seconds, stored

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
JobState = Literal["pending", "paused", "done", "cancelled"]
JOB_STATES: tuple[JobState, ...] = get_args(JobState)


class _DeclaredJobView(View):
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
    manual: bool = Field(description="The job has no schedule and runs only when it is triggered.")
    calendar: str | None
    on_closed: Literal["skip", "next", "previous", "nearest", "next_in_month"] | None
    window: dict[str, Any] | None
    jitter: float | int | None = Field(description="Seconds.")
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


_REQUESTED = ScheduleRequest.model_fields.keys() - {"id", "issued_at"}
# Copied fields of the request that are not declared above are shown as they are stored.
DERIVED_FIELDS = tuple(name for name in COPIED_FIELDS if name not in _DeclaredJobView.model_fields)


def _derived(name: str) -> Any:
    field = ScheduleRequest.model_fields[name]
    return field.annotation, Field(description=field.description)


if TYPE_CHECKING:
    JobView: TypeAlias = _DeclaredJobView
else:
    JobView = create_model(
        "JobView", __base__=_DeclaredJobView, __doc__=_DeclaredJobView.__doc__, __module__=__name__,
        **{name: _derived(name) for name in DERIVED_FIELDS},
    )


def job_view(row: JobRow) -> JobView:
    """Return the view of a requested job."""
    job, beside = row.job, row.beside
    definition = job.requested
    spec = definition.spec
    # Skip validation for speed: the values come from the database, and a list has 200 rows.
    return JobView.model_construct(
        id=UUID(job.id), name=definition.name, job_type=definition.job_type, tenant=job.tenant,
        status=job.status.value,
        payload=stored(definition.payload), run_at=_run_at(spec), rrule=spec.rrule, cron=spec.cron,
        every=seconds(spec.every), timezone=spec.timezone, manual=spec.manual, calendar=spec.calendar,
        on_closed=spec.on_closed, window=_window(spec.sending_window), jitter=seconds(spec.jitter),
        on_missed=definition.on_missed.value,
        max_lateness=seconds(definition.max_lateness), issued_at=job.requested_at,
        priority=definition.priority or Priority.NORMAL, route=definition.route, run=definition.run,
        target=_target(definition),
        next_run_at=job.next_run_at, occurrence=job.occurrence, created_at=beside.created_at,
        updated_at=beside.updated_at, created_by=beside.created_by, updated_by=beside.updated_by,
        last_due_at=beside.last_due_at, last_emitted_at=beside.last_emitted_at, last_problem=beside.last_problem,
        last_run_status=beside.last_run_status,
        **{name: getattr(definition, name) for name in DERIVED_FIELDS},
    )


def request_text(job: Job, *, masked: bool = True) -> str:
    """Return the request that defines a job as JSON text, with its id and the stored text of its payload."""
    definition = job.requested
    fields = {"id": job.id} | request_fields(JobRow(job, JobListColumns(_ANY_TIME, _ANY_TIME, *[None] * 5)))
    del fields["payload"]
    if not masked and definition.target is not None:
        fields["target"] = json.loads(definition.target)
    return f'{json.dumps(fields)[:-1]}, "payload": {definition.payload}}}'


def request_fields(row: JobRow) -> dict[str, Any]:
    """Return the fields of a job's stored request; fields that it did not set are omitted."""
    definition, view = row.job.definition, job_view(row)
    fields = view.model_dump(mode="json", exclude_none=True, include=_REQUESTED - {"payload"})
    if definition is not None and definition.priority is None:
        fields.pop("priority", None)
    return fields | {"payload": view.payload}


def job_etag(row: JobRow) -> str:
    """Return the job's ETag with quotes."""
    return f'"{etag(row.job)}"'


def _run_at(spec: Spec) -> str | None:
    """Return the start as an instant, or as wall time if the clocks skip it."""
    if spec.manual:
        return None
    if spec.rrule is not None and "DTSTART" in spec.rrule.upper():
        return None  # the rule has it
    if spec.dtstart is not None:
        local = spec.starts_at.astimezone(zone(spec.timezone)).replace(tzinfo=None)
        if local != spec.dtstart:
            return spec.dtstart.isoformat()
    return rfc3339(spec.starts_at)


def _window(text: str | None) -> dict[str, Any] | None:
    return None if text is None else window_fields(text)


def _target(definition: Definition) -> dict[str, Any] | None:
    if definition.target is None:
        return None
    return mask_target(json.loads(definition.target))
