"""Decide what a due job emits, and settle it afterwards."""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha1
from json.encoder import encode_basestring_ascii as _quoted  # like json.dumps of a string, but faster
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
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}  # RFC 9562


@dataclass(frozen=True, slots=True)
class Missed:
    """Skipped occurrences."""

    times: tuple[datetime, ...]
    count: int
    reason: str


@dataclass(slots=True)
class Emission:
    """The event to publish for a job, and its next run after the confirm."""

    job: Job
    definition: Definition
    due_at: datetime | None
    due_text: str  # due_at as in the event; empty without one
    event_id: str | None
    folded: int
    next_run_at: datetime | None
    missed: Missed | None = None
    triggered: bool = False
    next_run_text: str | None = None  # next_run_at as in the event
    held: bool = False  # waits for the job's open run and emits nothing
    run: Run | None = None  # the run that starts with it, if the job is tracked
    previous_run: Run | None = None  # the run as already stored, for example from an early result

    @property
    def tracked(self) -> bool:
        """Whether a run starts with it."""
        return self.event_id is not None and self.definition.run is not None


def event_id(job_id: str, due_at: datetime) -> str:
    """Return the id of an occurrence, the same for every emission: a version 5 UUID."""
    return _identity(job_id, rfc3339(due_at))


def _identity(job_id: str, due_text: str) -> str:
    """Return `uuid5(_EVENT_NAMESPACE, name)` as text, but faster."""
    digest = _EVENT_DIGEST.copy()
    digest.update(f"{job_id}/{due_text}".encode())
    text = digest.hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANTS[text[16]]}{text[17:20]}-{text[20:32]}"


def _emission(
    job: Job, definition: Definition, due_at: datetime, next_run_at: datetime | None, folded: int = 0
) -> Emission:
    text = rfc3339(due_at)
    return Emission(job, definition, due_at, text, _identity(job.id, text), folded, next_run_at)


def decide(job: Job, now: datetime) -> Emission:
    """Return the emission of a pending job at `now`, by the database's clock."""
    definition = job.definition
    assert definition is not None  # noqa: S101 - only a defined job is pending
    if job.held_by is None or definition.run is None:
        return _decide(job, definition, now)
    if definition.run.overlap is Overlap.WAIT:
        return Emission(job, definition, None, "", None, 0, job.next_run_at, held=True)
    return _skipped(_decide(job, definition, now))


def _decide(job: Job, definition: Definition, now: datetime) -> Emission:
    if job.trigger_at is not None and job.triggers:
        due_at = min(job.triggers[0], job.trigger_at)
        emission = _emission(job, definition, due_at, job.next_run_at)
        emission.triggered = True
        if compile_schedule(definition.spec).fires_at(due_at):
            emission.event_id = _identity(job.id, f"{emission.due_text}/trigger")  # not the occurrence's id
        return emission
    due, spec = job.next_run_at, definition.spec
    assert due is not None  # noqa: S101 - it was claimed because it is due
    if spec.one_shot and definition.max_lateness is None:
        return _emission(job, definition, due, None)
    planned = plan(
        compile_schedule(spec), due, now, definition.on_missed, definition.max_lateness,
        one_shot=spec.one_shot, missed_before=job.missed_before,
    )
    missed = None
    if planned.passed_count:
        missed = Missed(planned.passed, planned.passed_count, planned.reason or "latest")
    if planned.emit is None:
        return Emission(job, definition, None, "", None, planned.folded, planned.next_run_at, missed)
    emission = _emission(job, definition, planned.emit, planned.next_run_at, planned.folded)
    emission.missed = missed
    return emission


def _skipped(emission: Emission) -> Emission:
    """Skip the occurrence while a run of the job is open."""
    if emission.due_at is None:
        return emission
    before = emission.missed or Missed((), 0, "overlap")
    missed = Missed((*before.times, emission.due_at)[-MAX_MISSED:], before.count + 1, "overlap")
    return replace(emission, due_at=None, due_text="", event_id=None, folded=0, missed=missed)


def occurrence(emission: Emission) -> Occurrence:
    """Return the occurrence of a tracked job's emission."""
    job, definition, due_at = emission.job, emission.definition, emission.due_at
    assert definition.run is not None  # noqa: S101 - the emission is tracked
    assert due_at is not None  # noqa: S101 - the emission is tracked
    return Occurrence(
        job.id, definition.job_type, due_at, Origin.TRIGGER if emission.triggered else Origin.SCHEDULE,
        definition.run, f"{{{_event(emission)}}}", definition.correlation_id, definition.traceparent,
        definition.tracestate, job.tenant, definition.priority, definition.route,
        None if definition.target is None else work_key(definition.target),
    )


def settle(emission: Emission) -> Job:
    """Return the job after its events are confirmed, as the settling SQL does."""
    job = emission.job
    if emission.held:
        return job
    if emission.triggered:
        rest = job.triggers[1:]
        exhausted = job.next_run_at is None and not rest
        assert job.trigger_at is not None  # noqa: S101 - a trigger was emitted
        return replace(
            job, triggers=rest, triggered_at=max(job.triggers[0], job.triggered_at or job.triggers[0]),
            occurrence=job.occurrence + (emission.due_at is not None), retries=0, retry_at=None, held_by=None,
            trigger_at=job.trigger_at + timedelta(microseconds=1) if rest else None,
            status=JobStatus.DONE if exhausted else job.status,
        )
    return replace(
        job, next_run_at=emission.next_run_at, occurrence=job.occurrence + (emission.due_at is not None),
        retries=0, retry_at=None, held_by=None,
        status=JobStatus.DONE if emission.next_run_at is None else job.status,
    )


def due_body(emission: Emission, emitted_at: str) -> bytes:
    """Return the ScheduleDue of an untracked job."""
    emitted = f'"emitted_at":"{emitted_at}",'
    return f"{{{_event(emission, emitted)}}}".encode()


def _event(emission: Emission, emitted: str = "") -> str:
    """Return the members common to all emissions of an occurrence, with the payload's source text."""
    job, definition = emission.job, emission.definition
    next_run_at = "null"
    if emission.next_run_at is not None:
        emission.next_run_text = rfc3339(emission.next_run_at)
        next_run_at = f'"{emission.next_run_text}"'
    optional = "" if job.tenant == DEFAULT_TENANT else f',"tenant":"{job.tenant}"'
    if definition.target is not None:
        optional = f'{optional},"target":{definition.target}'
    return (
        f'"event_id":"{emission.event_id}","job_id":"{job.id}","job_type":{_quoted(definition.job_type)},'
        f'"payload":{definition.payload},"due_at":"{emission.due_text}",{emitted}'
        f'"occurrence":{job.occurrence + 1},"missed":{emission.folded},"next_run_at":{next_run_at}{optional}'
    )


def missed_id(emission: Emission) -> str:
    """Return the id of the ScheduleMissed, a function of the job, the occurrences and the reason."""
    missed = emission.missed
    assert missed is not None  # noqa: S101 - the caller checked it
    times = ",".join(map(rfc3339, missed.times))
    return _identity(emission.job.id, f"missed/{missed.reason}/{missed.count}/{times}")


def missed_body(emission: Emission) -> bytes:
    """Return the ScheduleMissed."""
    assert emission.missed is not None  # noqa: S101 - the caller checked it
    return json.dumps({
        "id": missed_id(emission),
        "job_id": emission.job.id,
        "job_type": emission.definition.job_type,
        "missed": [rfc3339(instant) for instant in emission.missed.times],
        "missed_count": emission.missed.count,
        "reason": emission.missed.reason,
    }).encode()
