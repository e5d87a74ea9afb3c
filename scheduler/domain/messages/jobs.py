"""Messages about jobs: commands, replies and events."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from scheduler.domain.messages.base import (
    MAX_MISSED,
    Command,
    ContractMessage,
    Instant,
    JobId,
    Seconds,
    Tenant,
)
from scheduler.domain.messages.runs import DueRun, RunPolicy
from scheduler.domain.messages.targets import Target


class OnMissed(StrEnum):
    """Handling of occurrences that passed while nothing could run."""

    LATEST = "latest"
    ALL = "all"
    SKIP = "skip"


class Priority(StrEnum):
    """Priority of a job under load."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


AMQP_PRIORITIES = {None: None, Priority.HIGH: 9, Priority.NORMAL: 5, Priority.LOW: 1}
Route = Annotated[str, Field(strict=True, max_length=200, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")]


class JobCommand(Command):
    """A command for one job."""

    about: ClassVar[str] = "id"

    id: JobId = Field(description="The host's own key for the job.")


class ScheduleRequest(JobCommand):
    """Run a job once or repeatedly. A second request with the same id replaces the schedule."""

    kind: ClassVar[str] = "request"

    job_type: str = Field(
        min_length=1, max_length=200, strict=True, description="The value the host dispatches on."
    )
    payload: dict[str, Any] = Field(
        default_factory=dict, strict=True, description="Returned unchanged in every ScheduleDue."
    )
    run_at: Annotated[str, Field(strict=True)] | None = Field(
        default=None,
        description="First run, and DTSTART of the rule: RFC 3339. Required if there is no recurrence. "
        "Without an offset it is local time in `timezone`.",
        examples=["2026-12-01T09:00:00", "2026-12-01T08:00:00Z"],
    )
    rrule: Annotated[str, Field(strict=True, max_length=4096)] | None = Field(
        default=None,
        description="RFC 5545: one rule, with or without `RRULE:`. More lines may be RDATE, EXDATE, "
        "and a DTSTART that replaces run_at and timezone.",
        examples=["FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"],
    )
    cron: Annotated[str, Field(strict=True, max_length=1000)] | None = Field(
        default=None,
        description="Five-field cron, or @hourly … @yearly.",
        examples=["0 9 * * 1-5"],
    )
    every: Annotated[str, Field(strict=True, max_length=100)] | Seconds | None = Field(
        default=None,
        description="Fixed interval from run_at, unaffected by clock changes: an ISO 8601 duration or seconds.",
        examples=["PT15M", 90],
    )
    timezone: Annotated[str, Field(strict=True, max_length=100)] = Field(
        default="UTC", description="IANA time zone in which rrule and cron are evaluated."
    )
    on_missed: OnMissed = Field(
        default=OnMissed.LATEST,
        description="How to handle occurrences that passed while nothing could run.",
    )
    max_lateness: Seconds | None = Field(
        default=None,
        description="Seconds. An occurrence later than this is reported as missed instead of emitted.",
    )
    name: Annotated[str, Field(strict=True, max_length=200)] | None = Field(
        default=None, description="Display name in the console and the command line."
    )
    priority: Priority | None = Field(
        default=None, description="Order of emission under load; default normal."
    )
    run: RunPolicy | None = Field(
        default=None,
        description="Tracks the job: each occurrence is a run with attempts until it succeeds or is dead.",
    )
    target: Target | None = Field(
        default=None, description="Work for a worker; the job is tracked."
    )
    route: Route | None = Field(default=None, description="The event's routing key is due.ROUTE.")

    @field_validator("route")  # not a model validator, which would run for every request
    @classmethod
    def _no_route_with_target(cls, route: str | None, others: ValidationInfo) -> str | None:
        if route is not None and others.data.get("target") is not None:
            raise ValueError("cannot be combined with target, which determines the queue; remove one of them")
        return route


class ScheduleCancel(JobCommand):
    """Stop a job, even if its request has not arrived yet."""

    kind: ClassVar[str] = "cancel"


class SchedulePause(JobCommand):
    """Stop emitting until the job is resumed."""

    kind: ClassVar[str] = "pause"


class ScheduleResume(JobCommand):
    """Resume a paused job; `on_missed` applies to the occurrences that passed."""

    kind: ClassVar[str] = "resume"


class ScheduleTrigger(JobCommand):
    """Emit one extra occurrence now; the schedule is unchanged."""

    kind: ClassVar[str] = "trigger"


class FieldProblem(ContractMessage):
    """A problem with one field of a command."""

    field: str
    problem: str


Status = Literal["scheduled", "cancelled", "unchanged", "superseded"]


class ScheduleAccepted(ContractMessage):
    """Reply to a command that was stored."""

    id: JobId
    status: Status
    next_run_at: Instant | None


class ScheduleRejected(ContractMessage):
    """Reply to a command that can never succeed."""

    id: str | None = Field(description="The command's id, if it is readable.")
    errors: list[FieldProblem]


class ScheduleDue(ContractMessage):
    """An occurrence is due."""

    event_id: JobId = Field(description="Identifies the occurrence; the same for every emission of it.")
    job_id: JobId
    job_type: str
    payload: dict[str, Any]
    due_at: Instant
    emitted_at: Instant
    occurrence: int = Field(ge=1, description="Counts emitted occurrences from 1.")
    missed: int = Field(ge=0, description="Number of earlier occurrences that this event replaces.")
    next_run_at: Instant | None = Field(description="null after the last occurrence.")
    tenant: Tenant | None = Field(default=None, description="Present if it is not `default`.")
    target: Target | None = Field(default=None, description="The work for a worker.")
    run: DueRun | None = Field(default=None, description="The attempt, if the job is tracked.")


class ScheduleMissed(ContractMessage):
    """Occurrences were skipped."""

    id: JobId = Field(description="Identifies the message; also its message_id.")
    job_id: JobId
    job_type: str
    missed: list[Instant] = Field(max_length=MAX_MISSED, description="The newest ones, oldest first.")
    missed_count: int = Field(ge=1)
    reason: Literal["skip", "max_lateness", "latest", "limit", "overlap"]
