"""What a due job emits now, and what becomes of it afterwards."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from scheduler.domain.job import event_id
from scheduler.domain.missed import OnMissed, plan
from scheduler.domain.recurrence import Spec, compile_schedule, zone
from scheduler.domain.times import rfc3339

_POLICIES = {policy.value: policy for policy in OnMissed}  # much quicker than asking the enum

@dataclass(slots=True)  # not frozen, for speed: see domain/job.py
class DueJob:
    """A claimed row, its columns in the order of claim_due.sql."""

    id: str
    job_type: str
    payload: str
    correlation_id: str | None
    traceparent: str | None
    tracestate: str | None
    rrule: str | None
    cron: str | None
    every: timedelta | None
    timezone: str
    dtstart: datetime | None
    starts_at: datetime | None
    ends_at: datetime | None
    on_missed: str
    max_lateness: timedelta | None
    next_run_at: datetime | None
    occurrence: int
    retries: int
    triggers: list[datetime]
    trigger_at: datetime | None
    requested_at: datetime | None
    paused_at: datetime | None
    resumed_at: datetime | None
    wake_at: datetime

    @property
    def one_shot(self) -> bool:
        return self.rrule is None and self.cron is None and self.every is None

    @property
    def missed_before(self) -> datetime | None:
        """Occurrences up to here passed while the job was paused."""
        paused = self.paused_at is not None and (
            self.requested_at is None or self.paused_at >= self.requested_at
        )
        return self.resumed_at if paused else None

    def spec(self) -> Spec:
        """Return the schedule; a row written by hand may lack a start: then it is its next run."""
        starts_at = self.starts_at or self.next_run_at
        assert starts_at is not None  # noqa: S101 - a claimed row without a trigger has a next run
        dtstart = self.dtstart
        if dtstart is None and self.rrule is not None:
            dtstart = starts_at.astimezone(zone(self.timezone)).replace(tzinfo=None)
        start = starts_at.astimezone(UTC)
        return Spec(self.rrule, self.cron, self.every, self.timezone, dtstart, start, self.ends_at)


@dataclass(frozen=True, slots=True)
class Missed:
    """Occurrences that are passed over."""

    times: tuple[datetime, ...]
    count: int
    reason: str


@dataclass(slots=True)
class Emission:
    """What to publish for a job, and its next run once that is confirmed."""

    job: DueJob
    due_at: datetime | None
    event_id: str | None
    folded: int
    next_run_at: datetime | None
    missed: Missed | None = None
    triggered: bool = False


def decide(job: DueJob, now: datetime) -> Emission:
    """Return what `job` emits at `now`, by the database's clock."""
    if job.trigger_at is not None and job.triggers:
        due_at = min(job.triggers[0], job.trigger_at)
        return Emission(job, due_at, event_id(job.id, due_at), 0, job.next_run_at, triggered=True)
    due = job.next_run_at
    assert due is not None  # noqa: S101 - it was claimed because it is due
    if job.one_shot and job.max_lateness is None:
        return Emission(job, due, event_id(job.id, due), 0, None)
    planned = plan(
        compile_schedule(job.spec()), due, now, _POLICIES[job.on_missed], job.max_lateness,
        one_shot=job.one_shot, missed_before=job.missed_before,
    )
    missed = None
    if planned.passed_count:
        missed = Missed(planned.passed, planned.passed_count, planned.reason or "latest")
    identity = None if planned.emit is None else event_id(job.id, planned.emit)
    return Emission(job, planned.emit, identity, planned.folded, planned.next_run_at, missed)


def due_body(emission: Emission, emitted_at: str) -> bytes:
    """Write the ScheduleDue; the payload goes in as the very text that the host sent."""
    job = emission.job
    assert emission.due_at is not None  # noqa: S101 - the caller asked whether there is one
    following = f'"{rfc3339(emission.next_run_at)}"' if emission.next_run_at else "null"
    return (
        f'{{"event_id":"{emission.event_id}","job_id":"{job.id}","job_type":{json.dumps(job.job_type)},'
        f'"payload":{job.payload},"due_at":"{rfc3339(emission.due_at)}",'
        f'"emitted_at":"{emitted_at}","occurrence":{job.occurrence + 1},'
        f'"missed":{emission.folded},"next_run_at":{following}}}'
    ).encode()


def missed_body(emission: Emission) -> bytes:
    """Write the ScheduleMissed."""
    assert emission.missed is not None  # noqa: S101 - the caller asked whether there is one
    return json.dumps({
        "job_id": emission.job.id,
        "job_type": emission.job.job_type,
        "missed": [rfc3339(each) for each in emission.missed.times],
        "missed_count": emission.missed.count,
        "reason": emission.missed.reason,
    }).encode()
