"""Runs: the state of one occurrence of a tracked job."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from scheduler.domain.messages import DEFAULT_TENANT, Priority, RunPolicy
from scheduler.domain.runs.result import Result


class RunStatus(StrEnum):
    """Status of a run, as in the database's enum."""

    EXPECTED = "expected"  # results arrived before the producer recorded the event
    DELIVERED = "delivered"
    RUNNING = "running"
    WAITING = "waiting"
    EMITTED = "emitted"  # history record of an untracked job
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Origin(StrEnum):
    """Origin of an occurrence."""

    SCHEDULE = "schedule"
    TRIGGER = "trigger"


class AttemptOutcome(StrEnum):
    """Outcome of an attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    SNOOZED = "snoozed"


FINAL = frozenset({RunStatus.EMITTED, RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED})
# Poll interval of producers while there are no runs, so that untracked jobs cost nothing. Notifications announce
# runs that are due sooner; only the deadline of a first run may be noticed this much later.
IDLE_SECONDS = 2.0
# Stored first and last attempts of a run, which may be snoozed forever. Their sum is the limit of `max_attempts`.
FIRST_KEPT = LAST_KEPT = 50
MAX_UNANNOUNCED = 20  # unannounced ends per run
UNKNOWN_AFTER = timedelta(hours=1)  # results for an unknown event are dropped then


@dataclass(slots=True)  # immutable by convention, not `frozen`: see jobs/definition.py
class Occurrence:
    """The occurrence of a run: the same for all attempts, regardless of later changes to the job."""

    job_id: str
    job_type: str
    due_at: datetime
    origin: Origin
    policy: RunPolicy
    event: str  # the ScheduleDue as JSON, without the members that differ per attempt
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    tenant: str = DEFAULT_TENANT
    priority: Priority | None = None
    route: str | None = None
    work: str | None = None  # routing key of the work for a worker


class TriggerCaller(NamedTuple):
    """Who triggered a run, and how."""

    via: str
    who: str | None


UNKNOWN_TRIGGER = TriggerCaller("amqp", None)  # of release 0.2, or no longer in the audit


@dataclass(slots=True)
class FinishedAttempt:
    """A finished attempt."""

    attempt: int
    outcome: AttemptOutcome
    worker: str | None
    started_at: datetime | None
    finished_at: datetime
    error: str | None
    output: str | None  # JSON text
    output_cut: bool = False


@dataclass(slots=True)
class RunEnd:
    """An end of a run, for a ScheduleFinished."""

    status: RunStatus
    attempt: int
    counted: int
    emitted_at: datetime | None
    started_at: datetime | None
    finished_at: datetime
    ended_at: datetime | None  # when the attempt that ended the run finished
    outcome: AttemptOutcome | None  # last attempt
    error: str | None
    output: str | None  # JSON text
    output_cut: bool = False


@dataclass(slots=True)
class Run:
    """State of a run; its fields and the occurrence's fields are columns."""

    event_id: str
    status: RunStatus
    attempt: int = 0  # deliveries so far: the number of the current attempt
    counted: int = 0  # attempts that count, since the request or the last retry
    emitted_at: datetime | None = None  # current attempt
    deadline: datetime | None = None
    alive_until: datetime | None = None  # the next heartbeat must arrive by then, if the worker sends any
    retry_at: datetime | None = None
    started_at: datetime | None = None  # first `running`, by the worker's clock if given; for durations only
    finished_at: datetime | None = None
    worker: str | None = None
    progress: float | None = None
    error: str | None = None
    output: str | None = None
    output_cut: bool = False
    attempts: tuple[FinishedAttempt, ...] = ()
    decided_by: str | None = None  # precedence of the result that decided the current attempt
    retried_at: datetime | None = None
    early: tuple[Result, ...] = ()  # arrived before the event was known
    noted_at: datetime | None = None  # arrival of the first early result
    attempts_omitted: int | None = None  # number missing from `attempts`, or None
    unannounced: tuple[RunEnd, ...] | None = None  # earlier ends without a ScheduleFinished, oldest first
    emitted_by: str | None = None  # the producer that published the newest attempt
    occurrence: Occurrence | None = None
    triggered_by: TriggerCaller | None = None  # not a column: lists find it in the audit

    @property
    def known_occurrence(self) -> Occurrence:
        """The occurrence of a run that is not `expected`."""
        if self.occurrence is None:
            raise TypeError(f"only results are known of the run {self.event_id}")
        return self.occurrence

    @property
    def open(self) -> bool:
        """Whether it can still change."""
        return self.status not in FINAL

    @property
    def wake_at(self) -> datetime | None:
        """Time of the next claim: to retry, to expire the attempt or to announce the end."""
        match self.status:
            case RunStatus.WAITING:
                return self.retry_at
            case RunStatus.DELIVERED:
                return self.deadline
            case RunStatus.RUNNING:
                return min((at for at in (self.deadline, self.alive_until) if at is not None), default=None)
            case RunStatus.EXPECTED:
                return None if self.noted_at is None else self.noted_at + UNKNOWN_AFTER
        return self.finished_at

    @property
    def expires_at(self) -> datetime | None:
        """Deadline of the current attempt; None if there is none."""
        return self.wake_at if self.status in (RunStatus.DELIVERED, RunStatus.RUNNING) else None

    @property
    def attempts_left(self) -> int:
        """Further attempts if the current one fails."""
        return 0 if self.occurrence is None else max(0, self.occurrence.policy.max_attempts - self.counted)

    @property
    def ended_by(self) -> FinishedAttempt | None:
        """The attempt that ended it, if one did."""
        if self.status is RunStatus.SUCCEEDED:
            return next((ended for ended in self.attempts if ended.outcome is AttemptOutcome.SUCCEEDED), None)
        return self.attempts[-1] if self.status is RunStatus.DEAD and self.attempts else None

    @property
    def duration(self) -> timedelta | None:
        """Duration of the attempt that ended it, from its start (or delivery) to its final result."""
        ended = self.ended_by
        if ended is None:
            return self._brief_duration
        if ended.started_at is not None:
            return max(timedelta(0), ended.finished_at - ended.started_at)
        # Both times are from the database's clock; the worker's may differ.
        reported = ended.outcome in (AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED)
        if not reported or ended.attempt != self.attempt or self.emitted_at is None or self.finished_at is None:
            return None
        return max(timedelta(0), self.finished_at - self.emitted_at)

    @property
    def _brief_duration(self) -> timedelta | None:
        """Duration from the run's own times, if it was read without its attempts."""
        started_at = self.started_at or self.emitted_at
        ended = self.status in (RunStatus.SUCCEEDED, RunStatus.DEAD) and not self.attempts
        if not ended or started_at is None or self.finished_at is None:
            return None
        return max(timedelta(0), self.finished_at - started_at)


_INDEX = {field.name: index for index, field in enumerate(fields(Run))}
_values = attrgetter(*_INDEX)


def replace(run: Run, **changes: Any) -> Run:
    """Return the run with these changes, faster than dataclasses.replace."""
    values = list(_values(run))
    for name, value in changes.items():
        values[_INDEX[name]] = value
    return Run(*values)
