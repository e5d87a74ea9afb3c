"""Jobs and their transitions: each command returns a new job, never mutates one.

Commands of one kind supersede each other by `issued_at`, and the job's state follows from the newest command of
each kind. So the outcome is the same regardless of the order and the repetition of commands.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter

from scheduler.domain.calendars import FindEffective, no_calendar
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.issued_at import TRUSTED_AHEAD, check_issued_at
from scheduler.domain.jobs.adjusted import AdjustedState, effective_calendar, plan_first, settled_nominal
from scheduler.domain.jobs.definition import Definition, Incoming, content, define, keep_start
from scheduler.domain.messages import (
    DEFAULT_TENANT,
    MAX_MISSED,
    Command,
    OnMissed,
    ScheduleCancel,
    SchedulePause,
    ScheduleRequest,
    ScheduleResume,
    ScheduleTrigger,
    Status,
)
from scheduler.domain.recurrence import RUN_NOW, Spec, compile_schedule, same_schedule, tzdata_version

MAX_TRIGGERS = 1000  # pending at a time; a trigger beyond that is rejected
TRIGGERS_REMEMBERED = timedelta(days=1)  # how long a redelivery of a trigger is recognised
_AHEAD = timedelta(seconds=5)
_MICROSECOND = timedelta(microseconds=1)
_STAMPS = ("requested_at", "cancelled_at", "paused_at", "resumed_at", "triggered_at")
_stamps = attrgetter(*_STAMPS)  # newest issued_at per kind of command


class JobStatus(StrEnum):
    """Status of a job, as in the database's enum."""

    PENDING = "pending"
    PAUSED = "paused"
    AWAITING = "awaiting"
    DONE = "done"
    CANCELLED = "cancelled"


VISIBLE_STATUSES = tuple(status.value for status in JobStatus if status is not JobStatus.AWAITING)


# Immutable by convention, not `frozen`: see definition.py.
@dataclass(slots=True)
class Job:
    """State of a job, the newest command of each kind, and its definition; each field is a column."""

    id: str  # in Postgres's format
    tenant: str = DEFAULT_TENANT  # the owner
    status: JobStatus = JobStatus.AWAITING
    next_run_at: datetime | None = None
    occurrence: int = 0
    retries: int = 0  # publications of the due event that the broker rejected
    retry_at: datetime | None = None
    triggers: tuple[datetime, ...] = ()  # issued_at of pending triggers, oldest first
    trigger_at: datetime | None = None  # when the oldest pending trigger was stored
    triggered_at: datetime | None = None  # newest issued_at of the emitted triggers
    requested_at: datetime | None = None
    cancelled_at: datetime | None = None
    paused_at: datetime | None = None
    resumed_at: datetime | None = None
    held_by: str | None = None  # an open run that blocks it (overlap: wait)
    zone_version: str | None = None  # of the zone data that planned it; None if it does not follow a wall clock
    # Only for a job with a calendar, a window or jitter; see adjusted.py and settled.py.
    nominal_at: datetime | None = None  # the nominal instant of next_run_at; None if it was not moved
    settled_until: datetime | None = None
    unsettled: tuple[datetime, ...] | None = None
    settled_due: datetime | None = None
    reported_until: datetime | None = None  # skipped occurrences up to this nominal instant are reported
    skip_at: datetime | None = None  # when to report the next ones
    calendar_revision: int | None = None  # of the calendar that planned it
    definition: Definition | None = None

    @property
    def requested(self) -> Definition:
        """The definition of a job whose request is stored."""
        if self.definition is None:
            raise TypeError(f"the job {self.id} has no request")
        return self.definition

    @property
    def fresh(self) -> bool:
        """Whether only its request was applied and nothing was emitted."""
        return (
            self.status is JobStatus.PENDING and self.requested_at is not None and self.cancelled_at is None
            and self.paused_at is None and self.resumed_at is None and self.occurrence == 0 and self.retries == 0
            and not self.triggers and self.triggered_at is None and self.retry_at is None
        )

    @property
    def stopped(self) -> bool:
        """Whether a cancel is newer than the newest request, even if the job is done."""
        return _not_before(self.cancelled_at, self.requested_at)

    def with_plan(self, state: AdjustedState) -> "Job":
        """Return the job with the columns that plan its occurrences."""
        return replace(self, **{field.name: getattr(state, field.name) for field in fields(state)})

    @property
    def active(self) -> bool:
        """Whether it is pending or paused."""
        return self.status in (JobStatus.PENDING, JobStatus.PAUSED)

    @property
    def paused(self) -> bool:
        """Whether the newest of pause, resume and cancel is a pause; a request's `paused` is one of them."""
        if self.paused_at is None:
            return False
        return not _newer(self.resumed_at, self.paused_at) and not _not_before(self.cancelled_at, self.paused_at)

    @property
    def missed_before(self) -> datetime | None:
        """End of the last pause: earlier occurrences passed while the job was paused."""
        paused = self.paused_at is not None and _not_before(self.resumed_at, self.requested_at)
        return self.resumed_at if paused else None

    @property
    def wake_at(self) -> datetime | None:
        """When a producer should claim it, if it is pending."""
        if self.retry_at is not None:
            return self.retry_at
        if self.trigger_at is None or (self.next_run_at is not None and self.next_run_at < self.trigger_at):
            return self.next_run_at
        return self.trigger_at


@dataclass(slots=True)
class CommandOutcome:
    """The job after a command, and the status of the reply."""

    job: Job
    status: Status
    stops_runs: bool = False  # a new cancel, which also cancels the job's open runs


def purged(job: Job, now: datetime) -> Job:
    """Return the tombstone of a purged job, which older requests do not replace."""
    at = max(now, *(stamp for stamp in _stamps(job) if stamp is not None))
    return Job(job.id, job.tenant, JobStatus.CANCELLED, requested_at=at, cancelled_at=at)


def apply(
    job: Job | None, incoming: Incoming, now: datetime, find: FindEffective = no_calendar
) -> CommandOutcome:
    """Return the outcome of a command for its job; None if the job is new. Raises Rejected.

    `now` is the database's clock. `find` returns the calendar of a request.
    """
    command = incoming.command
    if job is not None and job.tenant != incoming.tenant:
        raise Rejected([Problem("id", "is not available")])  # does not reveal the owner
    if job is not None and incoming.repeated:
        return CommandOutcome(job, "unchanged")
    if command.issued_at is not None:
        check_issued_at(command.issued_at, now)
    if job is not None:
        job = _in_bounds(job, command.issued_at, now)
    if isinstance(command, ScheduleRequest):
        definition = define(incoming, now)
        if job is None:  # the usual case
            issued, spec = command.issued_at or now, definition.spec
            new_job = Job(incoming.about, incoming.tenant, JobStatus.PENDING, _first(spec), requested_at=issued,
                          zone_version=None if spec.timezone == "UTC" else zone_version(spec),
                          definition=definition)
            if spec.adjusted:
                new_job = new_job.with_plan(plan_first(new_job.id, new_job.tenant, definition, find, now))
            outcome = CommandOutcome(new_job, "scheduled")
        else:
            issued = command.issued_at or issued_after_stored(job, now)
            start_given = command.run_at not in (None, RUN_NOW)
            outcome = _request(job, definition, issued, now, find, start_given=start_given)
        return outcome if command.paused is None else _pause_or_resume(outcome, issued, paused=command.paused)
    job = job or Job(incoming.about, incoming.tenant)
    if job.status is JobStatus.CANCELLED and isinstance(command, ScheduleTrigger) and command.issued_at is None:
        return CommandOutcome(job, "unchanged")  # issued now: it must not wait for the next request
    return _TRANSITIONS[type(command)](job, command.issued_at or issued_after_stored(job, now), now)


def _request(
    job: Job, definition: Definition, issued: datetime, now: datetime, find: FindEffective, *, start_given: bool
) -> CommandOutcome:
    if not _newer_request(job, definition, issued, start_given=start_given):
        return CommandOutcome(job, "unchanged" if issued == job.requested_at else "superseded")
    renewed = replace(job, requested_at=issued, retries=0, retry_at=None, held_by=None)
    successor = _settled(_planned(renewed, definition, now, find))
    return CommandOutcome(successor, "superseded" if successor.stopped else "scheduled")


def _unfinished_or_done(job: Job) -> JobStatus:
    exhausted = job.next_run_at is None and job.skip_at is None and not job.requested.spec.manual
    return JobStatus.DONE if exhausted and not job.triggers else JobStatus.PENDING


def _planned(job: Job, definition: Definition, now: datetime, find: FindEffective) -> Job:
    """Return the job with a newer definition and the next run.

    An unchanged schedule continues: a new name or payload emits no occurrence again. A cancelled job restarts.
    """
    stored, current = job.definition, zone_version(definition.spec)
    other_zones = job.zone_version is not None and job.zone_version != current
    if definition.spec.adjusted or (stored is not None and stored.spec.adjusted):
        return _planned_adjusted(job, definition, now, find, other_zones=other_zones)
    if stored is None or job.status is JobStatus.CANCELLED:
        following = _first(definition.spec)
    elif same_schedule(stored.spec, definition.spec, other_zones=other_zones):
        if definition.spec.start_source is None and definition.spec.one_shot and job.zone_version is None:
            # Release 0.2 did not store its wall time.
            return replace(job, definition=definition, zone_version=current)
        return replace(job, definition=keep_start(definition, stored.spec, planned=other_zones))
    else:
        following = _first_new(job, stored.spec, definition, now)
    planned = replace(job, definition=definition, next_run_at=following, occurrence=0, zone_version=current)
    return replace(planned, status=_unfinished_or_done(planned))


def zone_version(spec: Spec) -> str | None:
    """Return the version of the zone data that plans a schedule; None if it does not follow a wall clock."""
    return tzdata_version() if spec.follows_clock else None


def _planned_adjusted(
    job: Job, definition: Definition, now: datetime, find: FindEffective, *, other_zones: bool
) -> Job:
    """Return the job with a newer definition; the stored one, the new one or both have adjustments."""
    stored, spec, settled = job.definition, definition.spec, None
    if stored is not None and job.status is not JobStatus.CANCELLED:
        if same_schedule(stored.spec, spec, other_zones=other_zones):
            effective_calendar(spec, job.tenant, find)
            return replace(job, definition=keep_start(definition, stored.spec, planned=other_zones))
        limit = MAX_MISSED if definition.on_missed is OnMissed.ALL else 1
        former = None if stored.spec.calendar is None else find(job.tenant, stored.spec.calendar)
        settled = settled_nominal(job, stored.spec, former, spec, now, limit)
    if spec.adjusted:
        planned = job.with_plan(plan_first(job.id, job.tenant, definition, find, now, settled))
    else:
        following = _first(spec) if settled is None else compile_schedule(spec).next_after(settled)
        planned = job.with_plan(AdjustedState(following))
    planned = replace(planned, definition=definition, occurrence=0, zone_version=zone_version(spec))
    return replace(planned, status=_unfinished_or_done(planned))


def _first(spec: Spec) -> datetime | None:
    return spec.starts_at if spec.one_shot else compile_schedule(spec).first()


def _first_new(job: Job, stored: Spec, definition: Definition, now: datetime) -> datetime | None:
    """Return the first run of a changed schedule.

    If an occurrence that would be emitted now was settled under the stored schedule, continue after
    it; otherwise its event_id would be emitted again.
    """
    first = _first(definition.spec)
    if first is None or first > now:
        return first
    before, after = compile_schedule(stored), compile_schedule(definition.spec)
    for instant in reversed(after.newest_until(now, MAX_MISSED if definition.on_missed is OnMissed.ALL else 1)):
        settled = job.next_run_at is None or instant < job.next_run_at
        if settled and before.fires_at(instant):
            return after.next_after(instant)
    return first


def _cancel(job: Job, issued: datetime, _: datetime) -> CommandOutcome:
    if not _newer(issued, job.cancelled_at):
        return CommandOutcome(job, "unchanged" if issued == job.cancelled_at else "superseded")
    successor = _settled(replace(job, cancelled_at=issued))
    if job.requested_at is not None and issued < job.requested_at:
        return CommandOutcome(successor, "superseded")
    stopped = successor.status is JobStatus.CANCELLED and job.status is not JobStatus.CANCELLED
    return CommandOutcome(successor, "cancelled" if stopped else "unchanged", stops_runs=True)


def _pause(job: Job, issued: datetime, _: datetime) -> CommandOutcome:
    if not _newer(issued, job.paused_at):
        return CommandOutcome(job, "unchanged" if issued == job.paused_at else "superseded")
    return _switched(job, _settled(replace(job, paused_at=issued)), issued)


def _resume(job: Job, issued: datetime, _: datetime) -> CommandOutcome:
    if not _newer(issued, job.resumed_at):
        return CommandOutcome(job, "unchanged" if issued == job.resumed_at else "superseded")
    return _switched(job, _settled(replace(job, resumed_at=issued)), issued)


def _pause_or_resume(requested: CommandOutcome, issued: datetime, *, paused: bool) -> CommandOutcome:
    """Return the outcome of a request with `paused`, which is also a pause or a resume."""
    switched = (_pause if paused else _resume)(requested.job, issued, issued)
    changed = requested.status == "unchanged" and switched.status == "scheduled"
    return CommandOutcome(switched.job, "scheduled" if changed else requested.status)


def _trigger(job: Job, issued: datetime, now: datetime) -> CommandOutcome:
    if issued in job.triggers or issued == job.triggered_at:
        return CommandOutcome(job, "unchanged")
    # A trigger older than an emitted one arrived late, unless it may be a redelivery that is no longer recognised.
    forgotten = not _newer(issued, job.triggered_at) and issued < now - TRIGGERS_REMEMBERED
    if forgotten or not _newer(issued, job.cancelled_at):
        return CommandOutcome(job, "superseded")
    triggers = tuple(sorted((*job.triggers, issued)))
    status = JobStatus.PENDING if job.status is JobStatus.DONE else job.status
    successor = _settled(replace(job, triggers=triggers, trigger_at=job.trigger_at or now, status=status,
                                 retry_at=None))
    if len(successor.triggers) > MAX_TRIGGERS:
        raise Rejected([Problem("id", f"already has {MAX_TRIGGERS:,} pending triggers, the maximum for one job; "
                                      "trigger it again when some of them are emitted")])
    runs = successor.status in (JobStatus.PENDING, JobStatus.PAUSED)
    return CommandOutcome(successor, "scheduled" if runs else "unchanged")


# Transitions for all commands except requests; arguments: job, issued_at, now.
_TRANSITIONS: dict[type[Command], Callable[[Job, datetime, datetime], CommandOutcome]] = {
    ScheduleCancel: _cancel,
    SchedulePause: _pause,
    ScheduleResume: _resume,
    ScheduleTrigger: _trigger,
}


def _settled(job: Job) -> Job:
    """Derive status and triggers from the newest command of each kind; only a cancel drops triggers."""
    if job.triggers:
        triggers = tuple(t for t in job.triggers if _newer(t, job.cancelled_at))
        job = replace(job, triggers=triggers, trigger_at=job.trigger_at if triggers else None)
    if job.status is JobStatus.DONE:
        return job
    if job.stopped:
        return replace(job, status=JobStatus.CANCELLED, next_run_at=None, skip_at=None, retry_at=None, retries=0)
    if job.definition is None:
        status = JobStatus.AWAITING
    else:
        status = JobStatus.PAUSED if job.paused else _unfinished_or_done(job)
    return job if job.status is status else replace(job, status=status)


def _switched(before: Job, after: Job, issued: datetime) -> CommandOutcome:
    if before.status is not after.status:
        return CommandOutcome(after, "scheduled")
    late = before.requested_at is not None and issued < before.requested_at
    return CommandOutcome(after, "superseded" if late else "unchanged")


def _newer_request(job: Job, definition: Definition, issued: datetime, *, start_given: bool) -> bool:
    if job.requested_at is None:
        return True
    if issued != job.requested_at:
        return issued > job.requested_at
    if job.definition is None:
        return False  # purged at this instant
    # The same request again, or a different one with the same issued_at. Compare the content, so that the order of
    # arrival does not matter.
    return content(definition, start_given=start_given) > content(job.definition, start_given=start_given)


def issued_after_stored(job: Job, now: datetime) -> datetime:
    """Return the issued_at of a command without one: now, but after all stored commands.

    A stored timestamp may be slightly ahead of `now`, from a host's clock or a later transaction. A timestamp
    further ahead is intended and stays newer.
    """
    latest: datetime | None = max((t for t in (*_stamps(job), *job.triggers) if t is not None), default=None)
    if latest is None or now > latest or latest - now > _AHEAD:
        return now
    return latest + _MICROSECOND


def _in_bounds(job: Job, issued: datetime | None, now: datetime) -> Job:
    """Move timestamps that are too far ahead to just after the others, in order.

    Otherwise one of them would win over all commands until then. A repeated command is still recognized.
    """
    furthest = now + TRUSTED_AHEAD
    stamps = [stamp for stamp in (*_stamps(job), *job.triggers) if stamp is not None]
    if not stamps or max(stamps) <= furthest or issued in stamps:
        return job
    base = max((stamp for stamp in stamps if stamp <= furthest), default=now - TRUSTED_AHEAD)
    ahead = sorted({stamp for stamp in stamps if stamp > furthest})
    moved = {stamp: base + number * _MICROSECOND for number, stamp in enumerate(ahead, start=1)}
    changed = dict(zip(_STAMPS, (moved.get(stamp, stamp) for stamp in _stamps(job)), strict=True))
    return replace(job, triggers=tuple(moved.get(stamp, stamp) for stamp in job.triggers), **changed)


def _newer(a: datetime | None, b: datetime | None) -> bool:
    return a is not None and (b is None or a > b)


def _not_before(a: datetime | None, b: datetime | None) -> bool:
    return a is not None and (b is None or a >= b)
