"""Plan jobs again when their zone changes, and announce the new plan."""

import json
from dataclasses import dataclass, replace
from datetime import datetime

from scheduler.domain.calendars import FindEffective, no_calendar
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.adjusted import in_zone, plan_again
from scheduler.domain.jobs.emission import identity
from scheduler.domain.jobs.job import Job
from scheduler.domain.messages import DEFAULT_TENANT
from scheduler.domain.recurrence import Clock, Spec
from scheduler.domain.recurrence.zone_moves import move


@dataclass(frozen=True, slots=True)
class Cause:
    """A change: a zone with the version of its data, or a calendar with its version."""

    reason: str  # "zone" or "calendar"
    name: str
    version: str | int


def replan_in_zone(  # noqa: PLR0917 - a job, the change and its time
    job: Job, old: Clock | None, new: Clock, version: str, now: datetime, find: FindEffective = no_calendar
) -> Job:
    """Return the job planned by new zone data; `old` is the clock that planned it, None if that is unknown."""
    definition = job.definition
    if definition is None or job.next_run_at is None:
        return replace(job, zone_version=version)
    spec, following = move(definition.spec, job.nominal_at or job.next_run_at, old, new, now)
    if spec.adjusted:
        job = replace(job, definition=replace(definition, spec=spec), zone_version=version)
        if old is not None:
            job = job.with_plan(in_zone(job, old, new))
        return _plan_again(job, spec, find)
    return replace(job, definition=replace(definition, spec=spec), next_run_at=following, zone_version=version)


def replan_with_calendar(job: Job, find: FindEffective) -> Job:
    """Return the job planned with its current calendar; the same job if it already is."""
    definition = job.definition
    if definition is None or definition.spec.calendar is None:
        return job
    effective = find(job.tenant, definition.spec.calendar)
    if effective is None or effective.revision == job.calendar_revision:
        return job
    return job.with_plan(plan_again(job, definition.spec, effective))


def _plan_again(job: Job, spec: Spec, find: FindEffective) -> Job:
    effective = None if spec.calendar is None else find(job.tenant, spec.calendar)
    return job.with_plan(plan_again(job, spec, effective))


def replanned_body(before: Job, after: Job, cause: Cause) -> bytes:
    """Return the ScheduleReplanned of a job whose next run changed."""
    tenant = {} if after.tenant == DEFAULT_TENANT else {"tenant": after.tenant}
    return json.dumps({
        "job_id": after.id, "job_type": after.requested.job_type, **tenant,
        "old_next_run_at": _text(before.next_run_at), "next_run_at": _text(after.next_run_at),
        "reason": cause.reason, "name": cause.name, "version": cause.version,
    }).encode()


def replanned_id(before: Job, after: Job, cause: Cause) -> str:
    """Return the message_id of a ScheduleReplanned, the same if it is published again."""
    times = f"{_text(before.next_run_at)}/{_text(after.next_run_at)}"
    return identity(after.id, f"replanned/{cause.reason}/{cause.name}/{cause.version}/{times}")


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else rfc3339(instant)
