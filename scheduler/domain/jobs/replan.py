"""Plan jobs again when their zone changes, and announce the new plan."""

import json
from dataclasses import dataclass, replace
from datetime import datetime

from scheduler.domain.calendars import FindEffective, FindFormer, no_calendar, no_former
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.adjusted import former_calendar, plan_again, plan_with_calendar, planner_of
from scheduler.domain.jobs.emission import identity
from scheduler.domain.jobs.job import Job
from scheduler.domain.messages import DEFAULT_TENANT
from scheduler.domain.recurrence import Clock
from scheduler.domain.recurrence.zone_moves import move, moved_spec


@dataclass(frozen=True, slots=True)
class Cause:
    """A change: a zone with the version of its data, or a calendar with its version."""

    reason: str  # "zone" or "calendar"
    name: str
    version: str | int


def replan_in_zone(  # noqa: PLR0917 - a job, the change and its time
    job: Job, old: Clock | None, new: Clock, version: str, now: datetime, find: FindEffective = no_calendar,
    find_former: FindFormer = no_former
) -> Job:
    """Return the job planned by new zone data; `old` is the clock that planned it, None if that is unknown."""
    definition = job.definition
    if definition is None:
        return replace(job, zone_version=version)
    stored = definition.spec
    if stored.adjusted:
        spec = moved_spec(stored, old, new, now)
        replanned = replace(job, definition=replace(definition, spec=spec), zone_version=version)
        effective = None if stored.calendar is None else find(job.tenant, stored.calendar)
        before = planner_of(job, stored, former_calendar(job, stored, effective, find_former), old or new)
        after = planner_of(job, spec, effective, new)
        return replanned.with_plan(plan_again(job, before, after, effective, now))
    if job.next_run_at is None:
        return replace(job, zone_version=version)
    spec, following = move(stored, job.next_run_at, old, new, now)
    return replace(job, definition=replace(definition, spec=spec), next_run_at=following, zone_version=version)


def replan_with_calendar(
    job: Job, find: FindEffective, now: datetime, find_former: FindFormer = no_former, local: Clock | None = None
) -> Job:
    """Return the job planned with its current calendar; the same job if it already is.

    `local` is the clock of the zone data that planned it, if that is not this process's.
    """
    definition = job.definition
    if definition is None or definition.spec.calendar is None:
        return job
    effective = find(job.tenant, definition.spec.calendar)
    state = plan_with_calendar(job, definition.spec, effective, find_former, now, local)
    return job if state is None else job.with_plan(state)


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
