"""Decide what a due job emits, and settle it afterwards."""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha1
from json.encoder import encode_basestring_ascii as _quoted  # like json.dumps of a string, but faster
from uuid import UUID

from scheduler.domain.calendars import FindEffective, FindFormer, no_calendar, no_former
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.adjusted import AdjustedState, plan_with_calendar, planner_of
from scheduler.domain.jobs.adjusted_missed import plan_adjusted
from scheduler.domain.jobs.definition import Definition
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.jobs.missed import plan
from scheduler.domain.messages import DEFAULT_TENANT, MAX_MISSED, Overlap
from scheduler.domain.recurrence import Clock, compile_schedule
from scheduler.domain.runs.run import Occurrence, Origin, Run
from scheduler.domain.targets.target import work_key

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
    held: bool = False  # waits for one of the job's open runs and emits nothing
    run: Run | None = None  # the run that starts with it, if the job is tracked
    nominal_at: datetime | None = None  # if the occurrence was moved
    moved: tuple[str, ...] = ()
    merged: Missed | None = None  # occurrences that the emitted one replaces
    adjusted: AdjustedState | None = None  # the state of a job with adjustments afterwards
    waits_until: datetime | None = None  # nothing is emitted until its window opens
    calendar_version: int | None = None
    previous_run: Run | None = None  # the run as already stored, for example from an early result

    @property
    def tracked(self) -> bool:
        """Whether a run starts with it."""
        return self.event_id is not None and self.definition.run is not None


def event_id(job_id: str, due_at: datetime) -> str:
    """Return the id of an occurrence, the same for every emission: a version 5 UUID."""
    return identity(job_id, rfc3339(due_at))


def identity(job_id: str, due_text: str) -> str:
    """Return `uuid5(_EVENT_NAMESPACE, name)` as text, but faster."""
    digest = _EVENT_DIGEST.copy()
    digest.update(f"{job_id}/{due_text}".encode())
    text = digest.hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANTS[text[16]]}{text[17:20]}-{text[20:32]}"


def _emission(
    job: Job, definition: Definition, due_at: datetime, next_run_at: datetime | None, folded: int = 0
) -> Emission:
    text = rfc3339(due_at)
    return Emission(job, definition, due_at, text, identity(job.id, text), folded, next_run_at)


def decide(
    job: Job, now: datetime, local: Clock | None = None, find: FindEffective = no_calendar,
    find_former: FindFormer = no_former
) -> Emission:
    """Return the emission of a pending job at `now`, by the database's clock.

    `local` is the clock of the zone data that planned it, if that is not this process's. `find` returns its
    calendar, `find_former` the one that planned it.
    """
    definition = job.requested
    if job.held_by is None or definition.run is None:
        return _decide(job, definition, now, local, find, find_former)
    if definition.run.overlap is Overlap.WAIT:
        return Emission(job, definition, None, "", None, 0, job.next_run_at, held=True)
    return _skipped(_decide(job, definition, now, local, find, find_former))


def _decide(  # noqa: PLR0917 - a job, the time, and how to plan it
    job: Job, definition: Definition, now: datetime, local: Clock | None, find: FindEffective,
    find_former: FindFormer
) -> Emission:
    if job.trigger_at is not None and job.triggers:
        due_at = min(job.triggers[0], job.trigger_at)
        emission = _emission(job, definition, due_at, job.next_run_at)
        emission.triggered = True
        if compile_schedule(definition.spec, local).fires_at(due_at):
            emission.event_id = identity(job.id, f"{emission.due_text}/trigger")  # not the occurrence's id
        return emission
    if definition.spec.adjusted:
        return _decide_adjusted(job, now, local, find, find_former)
    due, spec = job.next_run_at, definition.spec
    assert due is not None  # noqa: S101 - it was claimed because it is due
    if spec.one_shot and definition.max_lateness is None:
        return _emission(job, definition, due, None)
    planned = plan(
        compile_schedule(spec, local), due, now, definition.on_missed, definition.max_lateness,
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


def _decide_adjusted(
    job: Job, now: datetime, local: Clock | None, find: FindEffective, find_former: FindFormer
) -> Emission:
    definition, spec = job.requested, job.requested.spec
    effective = None if spec.calendar is None else find(job.tenant, spec.calendar)
    state = plan_with_calendar(job, spec, effective, find_former, now, local)
    current = job if state is None else job.with_plan(state)
    planned = plan_adjusted(current, definition, planner_of(current, spec, effective, local), now)
    if planned.state is None:
        return Emission(job, definition, None, "", None, 0, job.next_run_at, waits_until=planned.waits_until)
    following, emit = planned.state.next_run_at, planned.emit
    if emit is None:
        emission = Emission(job, definition, None, "", None, 0, following)
    else:
        emission = _emission(job, definition, emit.due_at, following, planned.folded)
        emission.event_id = identity(job.id, rfc3339(emit.nominal_at))
        if emit.moved:
            emission.nominal_at, emission.moved = emit.nominal_at, tuple(map(str, emit.moved))
        if emit.merged:
            emission.merged = Missed(planned.merged, emit.merged, "merged")
    emission.adjusted = planned.state
    emission.calendar_version = None if effective is None else effective.version
    if planned.passed_count:
        emission.missed = Missed(planned.passed, planned.passed_count, planned.reason or "latest")
    return emission


def _skipped(emission: Emission) -> Emission:
    """Skip the occurrence while the job has as many open runs as it may have."""
    if emission.due_at is None:
        return emission
    before = emission.missed or Missed((), 0, "overlap")
    nominal = emission.nominal_at or emission.due_at
    missed = Missed((*before.times, nominal)[-MAX_MISSED:], before.count + 1, "overlap")
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
    if emission.waits_until is not None:
        return replace(job, retries=0, retry_at=emission.waits_until, held_by=None)
    if emission.triggered:
        rest = job.triggers[1:]
        exhausted = job.next_run_at is None and job.skip_at is None and not rest
        exhausted = exhausted and not emission.definition.spec.manual
        assert job.trigger_at is not None  # noqa: S101 - a trigger was emitted
        return replace(
            job, triggers=rest, triggered_at=max(job.triggers[0], job.triggered_at or job.triggers[0]),
            occurrence=job.occurrence + (emission.due_at is not None), retries=0, retry_at=None, held_by=None,
            trigger_at=job.trigger_at + timedelta(microseconds=1) if rest else None,
            status=JobStatus.DONE if exhausted else job.status,
        )
    if (state := emission.adjusted) is not None:
        exhausted = state.next_run_at is None and state.skip_at is None
        return replace(
            job.with_plan(state), occurrence=job.occurrence + (emission.due_at is not None),
            retries=0, retry_at=None, held_by=None, status=JobStatus.DONE if exhausted else job.status,
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
    if emission.nominal_at is not None:
        moved = '","'.join(emission.moved)
        optional = f'{optional},"nominal_at":"{rfc3339(emission.nominal_at)}","moved":["{moved}"]'
    if definition.target is not None:
        optional = f'{optional},"target":{definition.target}'
    return (
        f'"event_id":"{emission.event_id}","job_id":"{job.id}","job_type":{_quoted(definition.job_type)},'
        f'"payload":{definition.payload},"due_at":"{emission.due_text}",{emitted}'
        f'"occurrence":{job.occurrence + 1},"missed":{emission.folded},"next_run_at":{next_run_at}{optional}'
    )


def reports(emission: Emission) -> list[Missed]:
    """Return the passed occurrences to report, each group in its own ScheduleMissed."""
    return [missed for missed in (emission.missed, emission.merged) if missed is not None]


def missed_id(job_id: str, missed: Missed) -> str:
    """Return the id of the ScheduleMissed, a function of the job, the occurrences and the reason."""
    times = ",".join(map(rfc3339, missed.times))
    return identity(job_id, f"missed/{missed.reason}/{missed.count}/{times}")


def missed_body(job: Job, missed: Missed) -> bytes:
    """Return the ScheduleMissed."""
    assert job.definition is not None  # noqa: S101 - only a defined job has occurrences
    return json.dumps({
        "id": missed_id(job.id, missed),
        "job_id": job.id,
        "job_type": job.definition.job_type,
        "missed": [rfc3339(instant) for instant in missed.times],
        "missed_count": missed.count,
        "reason": missed.reason,
    }).encode()
