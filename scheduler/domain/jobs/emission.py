"""What a due job emits now, and what becomes of it afterwards."""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha1
from json.encoder import encode_basestring_ascii as _quoted  # what json.dumps makes of a text, and quicker
from uuid import UUID

from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.definition import Definition
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.jobs.missed import plan
from scheduler.domain.messages import DEFAULT_TENANT, MAX_MISSED, Overlap, work_key
from scheduler.domain.recurrence import compile_schedule
from scheduler.domain.runs.run import Occurrence, Origin, Run

_EVENT_NAMESPACE = UUID("6f1f4a0e-3c55-5f0b-9d0a-4f0f4c1b7a52")
_EVENT_DIGEST = sha1(_EVENT_NAMESPACE.bytes, usedforsecurity=False)
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}  # the upper bits are RFC 9562's


@dataclass(frozen=True, slots=True)
class Missed:
    """Occurrences that are passed over."""

    times: tuple[datetime, ...]
    count: int
    reason: str


@dataclass(slots=True)
class Emission:
    """What to publish for a job, and its next run once that is confirmed."""

    job: Job
    due_at: datetime | None
    due_text: str  # due_at as it is written into the event; empty where there is none
    event_id: str | None
    folded: int
    next_run_at: datetime | None
    missed: Missed | None = None
    triggered: bool = False
    following: str | None = None  # next_run_at as it was written into the event
    held: bool = False  # it waits for the job's open run, and emits nothing
    run: Run | None = None  # of a tracked job: the run that begins with it, once it is written
    known: Run | None = None  # the same run as it was before, where something was known of it already

    @property
    def tracked(self) -> bool:
        """Whether a run begins with it."""
        definition = self.job.definition
        return self.event_id is not None and definition is not None and definition.run is not None


def event_id(job_id: str, due_at: datetime) -> str:
    """Return the one id of an occurrence, however often it is emitted: a UUID of version 5."""
    return _identity(job_id, rfc3339(due_at))


def _identity(job_id: str, due_text: str) -> str:
    """Return the same as `uuid5(_EVENT_NAMESPACE, name)`, without the objects in between: every event has one."""
    digest = _EVENT_DIGEST.copy()
    digest.update(f"{job_id}/{due_text}".encode())
    text = digest.hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANTS[text[16]]}{text[17:20]}-{text[20:32]}"


def _emission(
    job: Job, due_at: datetime, folded: int, next_run_at: datetime | None, missed: Missed | None = None
) -> Emission:
    text = rfc3339(due_at)
    return Emission(job, due_at, text, _identity(job.id, text), folded, next_run_at, missed)


def decide(job: Job, now: datetime) -> Emission:
    """Return what `job` emits at `now`, by the database's clock."""
    definition = job.definition
    assert definition is not None  # noqa: S101 - only a defined job is pending
    if job.held_by is None or definition.run is None:
        return _decide(job, definition, now)
    if definition.run.overlap is Overlap.WAIT:
        return Emission(job, None, "", None, 0, job.next_run_at, held=True)
    return _skipped(_decide(job, definition, now))


def _decide(job: Job, definition: Definition, now: datetime) -> Emission:
    if job.trigger_at is not None and job.triggers:
        due_at = min(job.triggers[0], job.trigger_at)
        emission = _emission(job, due_at, 0, job.next_run_at)
        emission.triggered = True
        if compile_schedule(definition.spec).fires_at(due_at):
            emission.event_id = _identity(job.id, f"{emission.due_text}/trigger")  # not that of the occurrence
        return emission
    due, spec = job.next_run_at, definition.spec
    assert due is not None  # noqa: S101 - it was claimed because it is due
    if spec.one_shot and definition.max_lateness is None:
        return _emission(job, due, 0, None)
    planned = plan(
        compile_schedule(spec), due, now, definition.on_missed, definition.max_lateness,
        one_shot=spec.one_shot, missed_before=job.missed_before,
    )
    missed = None
    if planned.passed_count:
        missed = Missed(planned.passed, planned.passed_count, planned.reason or "latest")
    if planned.emit is None:
        return Emission(job, None, "", None, planned.folded, planned.next_run_at, missed)
    return _emission(job, planned.emit, planned.folded, planned.next_run_at, missed)


def _skipped(emission: Emission) -> Emission:
    """Pass over what would be emitted while a run of the job is open."""
    if emission.due_at is None:
        return emission
    before = emission.missed or Missed((), 0, "overlap")
    missed = Missed((*before.times, emission.due_at)[-MAX_MISSED:], before.count + 1, "overlap")
    return replace(emission, due_at=None, due_text="", event_id=None, folded=0, missed=missed)


def occurrence(emission: Emission) -> Occurrence:
    """Return what the run of a tracked job's occurrence is about."""
    job, definition, due_at = emission.job, emission.job.definition, emission.due_at
    assert definition is not None  # noqa: S101 - only a defined job emits
    assert definition.run is not None  # noqa: S101 - the caller asked whether it is tracked
    assert due_at is not None  # noqa: S101 - the caller asked whether there is one
    return Occurrence(
        job.id, definition.job_type, due_at, Origin.TRIGGER if emission.triggered else Origin.SCHEDULE,
        definition.run, f"{{{_event(emission)}}}", definition.correlation_id, definition.traceparent,
        definition.tracestate, job.tenant, definition.priority, definition.route,
        None if definition.target is None else work_key(definition.target),
    )


def settle(emission: Emission) -> Job:
    """Return what becomes of the job once its events are confirmed: what the settling statements do to its row."""
    job = emission.job
    if emission.held:
        return job
    if emission.triggered:
        rest = job.triggers[1:]
        spent = job.next_run_at is None and not rest
        assert job.trigger_at is not None  # noqa: S101 - a trigger was emitted
        return replace(
            job, triggers=rest, triggered_at=job.triggers[0],
            occurrence=job.occurrence + (emission.due_at is not None), retries=0, retry_at=None, held_by=None,
            trigger_at=job.trigger_at + timedelta(microseconds=1) if rest else None,
            status=JobStatus.DONE if spent else job.status,
        )
    return replace(
        job, next_run_at=emission.next_run_at, occurrence=job.occurrence + (emission.due_at is not None),
        retries=0, retry_at=None, held_by=None,
        status=JobStatus.DONE if emission.next_run_at is None else job.status,
    )


def due_body(emission: Emission, emitted_at: str) -> bytes:
    """Write the ScheduleDue of a job that is not tracked."""
    emitted = f'"emitted_at":"{emitted_at}",'
    return f"{{{_event(emission, emitted)}}}".encode()


def _event(emission: Emission, emitted: str = "") -> str:
    """Write what every emission of an occurrence says; the payload goes in as the very text that the host sent."""
    job, definition = emission.job, emission.job.definition
    assert definition is not None  # noqa: S101 - only a defined job emits
    following = "null"
    if emission.next_run_at is not None:
        emission.following = rfc3339(emission.next_run_at)
        following = f'"{emission.following}"'
    beside = "" if job.tenant == DEFAULT_TENANT else f',"tenant":"{job.tenant}"'
    if definition.target is not None:
        beside = f'{beside},"target":{definition.target}'
    return (
        f'"event_id":"{emission.event_id}","job_id":"{job.id}","job_type":{_quoted(definition.job_type)},'
        f'"payload":{definition.payload},"due_at":"{emission.due_text}",'
        f'{emitted}"occurrence":{job.occurrence + 1},"missed":{emission.folded},"next_run_at":{following}{beside}'
    )


def missed_id(emission: Emission) -> str:
    """Return the id of the ScheduleMissed, a function of the job, the occurrences and the reason."""
    missed = emission.missed
    assert missed is not None  # noqa: S101 - the caller asked whether there is one
    times = ",".join(map(rfc3339, missed.times))
    return _identity(emission.job.id, f"missed/{missed.reason}/{missed.count}/{times}")


def missed_body(emission: Emission) -> bytes:
    """Write the ScheduleMissed."""
    assert emission.missed is not None  # noqa: S101 - the caller asked whether there is one
    assert emission.job.definition is not None  # noqa: S101 - only a defined job emits
    return json.dumps({
        "id": missed_id(emission),
        "job_id": emission.job.id,
        "job_type": emission.job.definition.job_type,
        "missed": [rfc3339(each) for each in emission.missed.times],
        "missed_count": emission.missed.count,
        "reason": emission.missed.reason,
    }).encode()
