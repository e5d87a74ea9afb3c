"""A job and what each command makes of it: successors, never mutation.

Commands of one kind overwrite each other by `issued_at` alone, and everything else about the job follows
from the newest of each kind. So the outcome is the same however often and in whatever order they arrive.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.issued_at import TRUSTED_AHEAD, check_issued_at
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
from scheduler.domain.recurrence import Spec, compile_schedule, same_schedule

MAX_TRIGGERS = 1000  # pending at a time; a trigger beyond that is rejected
_AHEAD = timedelta(seconds=5)
_MICROSECOND = timedelta(microseconds=1)


_STAMPS = ("requested_at", "cancelled_at", "paused_at", "resumed_at", "triggered_at")
_stamps = attrgetter(*_STAMPS)  # the newest issued_at of each kind of command


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
        paused = self.paused_at is not None and _not_before(self.resumed_at, self.requested_at)
        return self.resumed_at if paused else None

    @property
    def wake_at(self) -> datetime | None:
        """When a producer should look at it, if it is pending."""
        if self.retry_at is not None:
            return self.retry_at
        if self.trigger_at is None or (self.next_run_at is not None and self.next_run_at < self.trigger_at):
            return self.next_run_at
        return self.trigger_at


@dataclass(slots=True)
class CommandOutcome:
    """What a command made of its job, and what to answer."""

    job: Job
    status: Status
    stops_runs: bool = False  # a cancel that is not a repetition: the job's open runs end with it


def apply(job: Job | None, incoming: Incoming, now: datetime) -> CommandOutcome:
    """Return what a command makes of its job, which is None if no command named it before; or raise Rejected.

    `now` is the database's clock.
    """
    command = incoming.command
    if job is not None and job.tenant != incoming.tenant:
        raise Rejected([Problem("id", "is not available")])  # nor does it say whose it is
    if job is not None and incoming.repeated:
        return CommandOutcome(job, "unchanged")
    check_issued_at(command.issued_at, now)
    if job is not None:
        job = _in_bounds(job, command.issued_at, now)
    if isinstance(command, ScheduleRequest):
        definition = define(incoming, now)
        if job is None:  # most requests are such: made in one go
            made = Job(incoming.about, incoming.tenant, JobStatus.PENDING, _first(definition.spec),
                       requested_at=command.issued_at or now, definition=definition)
            return CommandOutcome(made, "scheduled")
        issued = command.issued_at or _stored_last(job, now)
        return _request(job, definition, issued, now, start_given=command.run_at is not None)
    job = job or Job(incoming.about, incoming.tenant)
    return _TRANSITIONS[type(command)](job, command.issued_at or _stored_last(job, now), now)


def _request(
    job: Job, definition: Definition, issued: datetime, now: datetime, *, start_given: bool
) -> CommandOutcome:
    if not _newer_request(job, definition, issued, start_given=start_given):
        return CommandOutcome(job, "unchanged" if issued == job.requested_at else "superseded")
    planned = _planned(replace(job, requested_at=issued, retries=0, retry_at=None, held_by=None), definition, now)
    successor = _settled(planned)
    if successor.next_run_at is None and not successor.triggers and not successor.stopped:
        successor = replace(successor, status=JobStatus.DONE)  # the trigger that it waited for was dropped
    return CommandOutcome(successor, "superseded" if successor.stopped else "scheduled")


def _planned(job: Job, definition: Definition, now: datetime) -> Job:
    """Return the job with a newer definition, and its next run by that.

    An unchanged schedule goes on: a new name or payload emits nothing again. A cancelled job starts anew.
    """
    stored = job.definition
    if stored is None or job.status is JobStatus.CANCELLED:
        following = _first(definition.spec)
    elif same_schedule(stored.spec, definition.spec):
        return replace(job, definition=keep_start(definition, stored.spec))
    else:
        following = _first_new(job, stored.spec, definition, now)
    status = JobStatus.PENDING if following is not None else JobStatus.DONE
    return replace(job, definition=definition, next_run_at=following, occurrence=0, status=status)


def _first(spec: Spec) -> datetime | None:
    return spec.starts_at if spec.one_shot else compile_schedule(spec).first()


def _first_new(job: Job, stored: Spec, definition: Definition, now: datetime) -> datetime | None:
    """Return the first run of a changed schedule.

    If an occurrence that would be emitted now was settled under the stored schedule, the changed one goes on after
    it: otherwise its event_id would be emitted again.
    """
    first = _first(definition.spec)
    if first is None or first > now:
        return first
    before, after = compile_schedule(stored), compile_schedule(definition.spec)
    for each in reversed(after.newest_until(now, MAX_MISSED if definition.on_missed is OnMissed.ALL else 1)):
        settled = job.next_run_at is None or each < job.next_run_at
        if settled and before.fires_at(each):
            return after.next_after(each)
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


def _trigger(job: Job, issued: datetime, now: datetime) -> CommandOutcome:
    if issued in job.triggers or issued == job.triggered_at:
        return CommandOutcome(job, "unchanged")
    if not _newer(issued, job.triggered_at) or not _newer(issued, job.requested_at):
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


# What every command but a request makes of a job, by when it was issued and when it is stored.
_TRANSITIONS: dict[type[Command], Callable[[Job, datetime, datetime], CommandOutcome]] = {
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
    elif _paused(job):
        status = JobStatus.PAUSED
    return job if job.status is status else replace(job, status=status)


def _paused(job: Job) -> bool:
    """Tell whether the newest of pause, resume and cancel is a pause: a request leaves that as it is."""
    if job.paused_at is None:
        return False
    return not _newer(job.resumed_at, job.paused_at) and not _not_before(job.cancelled_at, job.paused_at)


def _switched(before: Job, after: Job, issued: datetime) -> CommandOutcome:
    if before.status is not after.status:
        return CommandOutcome(after, "scheduled")
    late = before.requested_at is not None and issued < before.requested_at
    return CommandOutcome(after, "superseded" if late else "unchanged")


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
    latest: datetime | None = max((t for t in (*_stamps(job), *job.triggers) if t is not None), default=None)
    if latest is None or now > latest or latest - now > _AHEAD:
        return now
    return latest + _MICROSECOND


def _in_bounds(job: Job, issued: datetime | None, now: datetime) -> Job:
    """Move stamps that are too far ahead back to just after the others, in their order.

    Otherwise one of them would win over every command until then. A repetition of its command is still recognised.
    """
    furthest = now + TRUSTED_AHEAD
    known = [each for each in (*_stamps(job), *job.triggers) if each is not None]
    if not known or max(known) <= furthest or issued in known:
        return job
    base = max((each for each in known if each <= furthest), default=now - TRUSTED_AHEAD)
    ahead = sorted({each for each in known if each > furthest})
    moved = {each: base + number * _MICROSECOND for number, each in enumerate(ahead, start=1)}
    stamps = dict(zip(_STAMPS, (moved.get(each, each) for each in _stamps(job)), strict=True))
    return replace(job, triggers=tuple(moved.get(each, each) for each in job.triggers), **stamps)


def _newer(a: datetime | None, b: datetime | None) -> bool:
    return a is not None and (b is None or a > b)


def _not_before(a: datetime | None, b: datetime | None) -> bool:
    return a is not None and (b is None or a >= b)
