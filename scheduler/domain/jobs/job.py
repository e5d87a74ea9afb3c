"""A job and what each command makes of it: successors, never mutation.

Commands of one kind overwrite each other by `issued_at` alone, and everything else about the job follows
from the newest of each kind. So the outcome is the same however often and in whatever order they arrive.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.jobs.definition import Definition, Incoming, content, define
from scheduler.domain.messages import (
    DEFAULT_TENANT,
    Command,
    ScheduleCancel,
    SchedulePause,
    ScheduleRequest,
    ScheduleResume,
    ScheduleTrigger,
    Status,
)
from scheduler.domain.recurrence import Spec, compile_schedule

MAX_TRIGGERS = 1000
_AHEAD = timedelta(seconds=5)
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class JobStatus(StrEnum):
    """Where a job stands; the same words as the database's enum."""

    PENDING = "pending"
    PAUSED = "paused"
    AWAITING = "awaiting"
    DONE = "done"
    CANCELLED = "cancelled"


# Never changed once made, and not `frozen`: see definition.py.
@dataclass(slots=True)
class Job:
    """Where a job stands, the newest command of each kind, and what defines it: each field is a column."""

    id: str  # as Postgres writes it
    tenant: str = DEFAULT_TENANT  # whose it is, until the row is pruned
    status: JobStatus = JobStatus.AWAITING
    next_run_at: datetime | None = None
    occurrence: int = 0
    retries: int = 0  # how often the broker has refused the event that is due; of the work it tells nothing
    retry_at: datetime | None = None
    triggers: tuple[datetime, ...] = ()  # issued_at of each that waits to be emitted, oldest first
    trigger_at: datetime | None = None  # when the oldest of them was stored
    triggered_at: datetime | None = None
    requested_at: datetime | None = None
    cancelled_at: datetime | None = None
    paused_at: datetime | None = None
    resumed_at: datetime | None = None
    held_by: str | None = None  # the open run that it waits for (overlap: wait)
    definition: Definition | None = None

    @property
    def fresh(self) -> bool:
        """Whether it is as its request left it, and no other command was ever applied to it."""
        return (
            self.status is JobStatus.PENDING and self.requested_at is not None and self.cancelled_at is None
            and self.paused_at is None and self.resumed_at is None and self.occurrence == 0 and self.retries == 0
            and not self.triggers and self.triggered_at is None and self.retry_at is None
        )

    @property
    def stopped(self) -> bool:
        """Whether a cancel is newer than the newest request, also where every occurrence was out already."""
        return _not_before(self.cancelled_at, self.requested_at)

    @property
    def missed_before(self) -> datetime | None:
        """Occurrences up to here passed while the job was paused."""
        return self.resumed_at if _not_before(self.paused_at, self.requested_at) else None

    @property
    def wake_at(self) -> datetime | None:
        """When a producer should look at it, if it is pending."""
        if self.retry_at is not None:
            return self.retry_at
        if self.trigger_at is None or (self.next_run_at is not None and self.next_run_at < self.trigger_at):
            return self.next_run_at
        return self.trigger_at


@dataclass(slots=True)
class Outcome:
    """What a command made of its job, and what to answer."""

    job: Job
    status: Status
    stops_runs: bool = False  # a cancel that is not a repetition: the job's open runs end with it


def apply(job: Job | None, incoming: Incoming, now: datetime) -> Outcome:
    """Return what a command makes of its job, which is None if no command named it before; or raise Rejected.

    `now` is the database's clock.
    """
    command = incoming.command
    if job is not None and job.tenant != incoming.tenant:
        raise Rejected([Problem("id", "is not available")])  # nor does it say whose it is
    if isinstance(command, ScheduleRequest):
        definition = define(incoming, now)
        if job is None:  # most requests are such: made in one go
            made = Job(incoming.about, incoming.tenant, JobStatus.PENDING, _first(definition.spec),
                       requested_at=command.issued_at or now, definition=definition)
            return Outcome(made, "scheduled")
        issued = command.issued_at or _stored_last(job, now)
        return _request(job, definition, issued, start_given=command.run_at is not None)
    job = job or Job(incoming.about, incoming.tenant)
    return _TRANSITIONS[type(command)](job, command.issued_at or _stored_last(job, now), now)


def _request(job: Job, definition: Definition, issued: datetime, *, start_given: bool) -> Outcome:
    if not _newer_request(job, definition, issued, start_given=start_given):
        return Outcome(job, "unchanged" if issued == job.requested_at else "superseded")
    successor = _settled(replace(
        job, definition=definition, requested_at=issued, next_run_at=_first(definition.spec), occurrence=0,
        retries=0, retry_at=None, held_by=None, status=JobStatus.PENDING,
    ))
    overtaken = successor.status is JobStatus.CANCELLED
    return Outcome(successor, "superseded" if overtaken else "scheduled")


def _first(spec: Spec) -> datetime | None:
    return spec.starts_at if spec.one_shot else compile_schedule(spec).first()


def _cancel(job: Job, issued: datetime, _: datetime) -> Outcome:
    if not _newer(issued, job.cancelled_at):
        return Outcome(job, "unchanged" if issued == job.cancelled_at else "superseded")
    successor = _settled(replace(job, cancelled_at=issued))
    if job.requested_at is not None and issued < job.requested_at:
        return Outcome(successor, "superseded")
    stopped = successor.status is JobStatus.CANCELLED and job.status is not JobStatus.CANCELLED
    return Outcome(successor, "cancelled" if stopped else "unchanged", stops_runs=True)


def _pause(job: Job, issued: datetime, _: datetime) -> Outcome:
    if not _newer(issued, job.paused_at):
        return Outcome(job, "unchanged" if issued == job.paused_at else "superseded")
    return _switched(job, _settled(replace(job, paused_at=issued)), issued)


def _resume(job: Job, issued: datetime, _: datetime) -> Outcome:
    if not _newer(issued, job.resumed_at):
        return Outcome(job, "unchanged" if issued == job.resumed_at else "superseded")
    return _switched(job, _settled(replace(job, resumed_at=issued)), issued)


def _trigger(job: Job, issued: datetime, now: datetime) -> Outcome:
    if issued in job.triggers or issued == job.triggered_at:
        return Outcome(job, "unchanged")
    if not _newer(issued, job.triggered_at) or not _newer(issued, job.requested_at):
        return Outcome(job, "superseded")
    triggers = tuple(sorted((*job.triggers, issued)))[-MAX_TRIGGERS:]
    status = JobStatus.PENDING if job.status is JobStatus.DONE else job.status
    successor = _settled(replace(job, triggers=triggers, trigger_at=job.trigger_at or now, status=status,
                                 retry_at=None))
    runs = successor.status in (JobStatus.PENDING, JobStatus.PAUSED)
    return Outcome(successor, "scheduled" if runs else "unchanged")


# What every command but a request makes of a job, by when it was issued and when it is stored.
_TRANSITIONS: dict[type[Command], Callable[[Job, datetime, datetime], Outcome]] = {
    ScheduleCancel: _cancel,
    SchedulePause: _pause,
    ScheduleResume: _resume,
    ScheduleTrigger: _trigger,
}


def _settled(job: Job) -> Job:
    """Derive all that follows from the newest command of each kind."""
    if job.triggers:
        triggers = tuple(t for t in job.triggers if _newer(t, job.requested_at) and _newer(t, job.cancelled_at))
        job = replace(job, triggers=triggers, trigger_at=job.trigger_at if triggers else None)
    if job.status is JobStatus.DONE:
        return job
    if job.stopped:
        return replace(job, status=JobStatus.CANCELLED, next_run_at=None, retry_at=None, retries=0)
    status = JobStatus.PENDING
    if job.definition is None:
        status = JobStatus.AWAITING
    elif _not_before(job.paused_at, job.requested_at) and not _newer(job.resumed_at, job.paused_at):
        status = JobStatus.PAUSED
    return job if job.status is status else replace(job, status=status)


def _switched(before: Job, after: Job, issued: datetime) -> Outcome:
    if before.requested_at is not None and issued < before.requested_at:
        return Outcome(after, "superseded")
    return Outcome(after, "scheduled" if before.status is not after.status else "unchanged")


def _newer_request(job: Job, definition: Definition, issued: datetime, *, start_given: bool) -> bool:
    if job.requested_at is None or job.definition is None:
        return True
    if issued != job.requested_at:
        return issued > job.requested_at
    # The same request again, or a different one with the very same issued_at: then any rule will do that
    # ignores the order of arrival. When the job was stored, and for which caller, makes no difference.
    return content(definition, start_given=start_given) > content(job.definition, start_given=start_given)


def _stored_last(job: Job, now: datetime) -> datetime:
    """Without issued_at a command counts as issued when it is stored: after all that is stored already.

    That holds also for what was stamped a moment ahead of the database's clock, by a host whose clock is or in a
    transaction that began later; a stamp further ahead than that was meant.
    """
    known = (job.requested_at, job.cancelled_at, job.paused_at, job.resumed_at, job.triggered_at)
    latest = max((t for t in (*known, *job.triggers) if t is not None), default=None)
    if latest is None or now > latest or latest - now > _AHEAD:
        return now
    return latest + min(timedelta(microseconds=1), _END_OF_TIME - latest)


def _newer(a: datetime | None, b: datetime | None) -> bool:
    return a is not None and (b is None or a > b)


def _not_before(a: datetime | None, b: datetime | None) -> bool:
    return a is not None and (b is None or a >= b)
