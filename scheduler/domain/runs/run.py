"""A run: where one occurrence of a tracked job stands."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any

from scheduler.domain.messages import DEFAULT_TENANT, Priority, RunPolicy
from scheduler.domain.runs.result import Result


class RunStatus(StrEnum):
    """Where a run stands; the same words as the database's enum."""

    EXPECTED = "expected"  # results came before the producer's own record of the event
    DELIVERED = "delivered"
    RUNNING = "running"
    WAITING = "waiting"
    EMITTED = "emitted"  # of a job that is not tracked: a record in the history, nothing more
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Origin(StrEnum):
    """Why there is an occurrence."""

    SCHEDULE = "schedule"
    TRIGGER = "trigger"


class AttemptOutcome(StrEnum):
    """What became of one attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    SNOOZED = "snoozed"


FINAL = frozenset({RunStatus.EMITTED, RunStatus.SUCCEEDED, RunStatus.DEAD, RunStatus.CANCELLED})
# Producers leave runs alone for so long while there are none, so that who tracks nothing pays next to nothing; and
# they are told of what falls due sooner. Only the time limit of a first run is seen that much later at most.
IDLE_SECONDS = 2.0
# How many of the first and the last attempts of a run are kept: it may be snoozed without end. Together they are
# as many as `max_attempts` can be.
FIRST_KEPT = LAST_KEPT = 50
MOST_UNANNOUNCED = 20  # ends of one run that wait to be announced
UNKNOWN_AFTER = timedelta(hours=1)  # results of an event that stays unknown for so long are dropped


@dataclass(slots=True)  # never changed once made, and not `frozen`: see jobs/definition.py
class Occurrence:
    """What a run is about: the same for all its attempts, whatever becomes of the job."""

    job_id: str
    job_type: str
    due_at: datetime
    origin: Origin
    policy: RunPolicy
    event: str  # the ScheduleDue as JSON, without what differs from attempt to attempt
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    tenant: str = DEFAULT_TENANT
    priority: Priority | None = None
    route: str | None = None
    work: str | None = None  # the routing key by which a worker gets it


@dataclass(slots=True)
class FinishedAttempt:
    """One attempt that has come to an end."""

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
    """An end of a run, as it is announced."""

    status: RunStatus
    attempt: int
    counted: int
    emitted_at: datetime | None
    started_at: datetime | None
    finished_at: datetime
    ended_at: datetime | None  # when the attempt that ended the run finished
    outcome: AttemptOutcome | None  # of the last attempt
    error: str | None
    output: str | None  # JSON text
    output_cut: bool = False


@dataclass(slots=True)
class Run:
    """Where an occurrence stands; each field is a column, and so is each of the occurrence's."""

    event_id: str
    status: RunStatus
    attempt: int = 0  # deliveries so far: the number of the current attempt
    counted: int = 0  # those of them that count, since the request or the last retry
    emitted_at: datetime | None = None  # of the current attempt
    deadline: datetime | None = None
    alive_until: datetime | None = None  # a sign of life must come by then, where the worker has promised one
    retry_at: datetime | None = None
    started_at: datetime | None = None  # its first `running`, by its worker's clock if it said: for durations only
    finished_at: datetime | None = None
    worker: str | None = None
    progress: float | None = None
    error: str | None = None
    output: str | None = None
    output_cut: bool = False
    attempts: tuple[FinishedAttempt, ...] = ()
    decided_by: str | None = None  # what decided the current attempt, to weigh another word about it against
    retried_at: datetime | None = None
    early: tuple[Result, ...] = ()  # came before the event was known
    noted_at: datetime | None = None  # when the first of them came
    attempts_omitted: int | None = None  # how many are left out of `attempts`; None where none is
    unannounced: tuple[RunEnd, ...] | None = None  # earlier ends, oldest first, of which nobody was told yet
    occurrence: Occurrence | None = None

    @property
    def open(self) -> bool:
        """Whether something is still to become of it."""
        return self.status not in FINAL

    @property
    def wake_at(self) -> datetime | None:
        """When a producer should look at it: to try again, to give up waiting, or to tell how it ended."""
        match self.status:
            case RunStatus.WAITING:
                return self.retry_at
            case RunStatus.DELIVERED:
                return self.deadline
            case RunStatus.RUNNING:
                return min((each for each in (self.deadline, self.alive_until) if each is not None), default=None)
            case RunStatus.EXPECTED:
                return None if self.noted_at is None else self.noted_at + UNKNOWN_AFTER
        return self.finished_at

    @property
    def expires_at(self) -> datetime | None:
        """When the current attempt is over unless more is reported; None if no attempt is under way."""
        return self.wake_at if self.status in (RunStatus.DELIVERED, RunStatus.RUNNING) else None

    @property
    def attempts_left(self) -> int:
        """How many more attempts are made if the current one fails."""
        return 0 if self.occurrence is None else max(0, self.occurrence.policy.max_attempts - self.counted)

    @property
    def ended_by(self) -> FinishedAttempt | None:
        """The attempt that ended it, if one did."""
        if self.status is RunStatus.SUCCEEDED:
            return next((each for each in self.attempts if each.outcome is AttemptOutcome.SUCCEEDED), None)
        return self.attempts[-1] if self.status is RunStatus.DEAD and self.attempts else None

    @property
    def duration(self) -> timedelta | None:
        """How long the attempt took that ended it: from its start, or else its delivery, to its final result."""
        ended = self.ended_by
        if ended is None:
            return self._brief_duration
        if ended.started_at is not None:
            return max(timedelta(0), ended.finished_at - ended.started_at)
        # Both by the database's clock: the worker's may differ.
        reported = ended.outcome in (AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED)
        if not reported or ended.attempt != self.attempt or self.emitted_at is None or self.finished_at is None:
            return None
        return max(timedelta(0), self.finished_at - self.emitted_at)

    @property
    def _brief_duration(self) -> timedelta | None:
        """The same, by the run's own times, if it was read without its attempts."""
        started_at = self.started_at or self.emitted_at
        ended = self.status in (RunStatus.SUCCEEDED, RunStatus.DEAD) and not self.attempts
        if not ended or started_at is None or self.finished_at is None:
            return None
        return max(timedelta(0), self.finished_at - started_at)


_INDEX = {each.name: index for index, each in enumerate(fields(Run))}
_values = attrgetter(*_INDEX)


def replace(run: Run, **changes: Any) -> Run:
    """Return the run with these changes: dataclasses.replace, without its questions about each field."""
    values = list(_values(run))
    for name, value in changes.items():
        values[_INDEX[name]] = value
    return Run(*values)
