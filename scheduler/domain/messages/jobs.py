"""The messages about jobs: commands in, answers and events out."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from scheduler.domain.jobs.missed import OnMissed
from scheduler.domain.messages.base import (
    MAX_MISSED_LISTED,
    Command,
    ContractMessage,
    Instant,
    JobId,
    Seconds,
    Tenant,
)
from scheduler.domain.messages.runs import DueRun, RunPolicy
from scheduler.domain.messages.targets import Target


class Priority(StrEnum):
    """Who goes first when more is due than can go out."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


AMQP_PRIORITIES = {None: None, Priority.HIGH: 9, Priority.NORMAL: 5, Priority.LOW: 1}  # as a property


Route = Annotated[str, Field(strict=True, max_length=200, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")]


class JobCommand(Command):
    """What every command about a job has: which one."""

    about: ClassVar[str] = "id"

    id: JobId = Field(description="The host's own key for the job.")


class ScheduleRequest(JobCommand):
    """Run a job once or again and again. The same id again replaces the schedule."""

    kind: ClassVar[str] = "request"

    job_type: str = Field(
        min_length=1, max_length=200, strict=True, description="What the host dispatches on."
    )
    payload: dict[str, Any] = Field(
        default_factory=dict, strict=True, description="Handed back unchanged in every ScheduleDue."
    )
    run_at: Annotated[str, Field(strict=True)] | None = Field(
        default=None,
        description="The first run, and the rule's DTSTART: RFC 3339. Required when there is no recurrence. "
        "Without an offset it is wall time in `timezone`.",
        examples=["2026-12-01T09:00:00", "2026-12-01T08:00:00Z"],
    )
    rrule: Annotated[str, Field(strict=True, max_length=4096)] | None = Field(
        default=None,
        description="RFC 5545: one rule, with or without `RRULE:`; further lines may be RDATE, EXDATE, "
        "and a DTSTART in place of run_at and timezone.",
        examples=["FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"],
    )
    cron: Annotated[str, Field(strict=True, max_length=1000)] | None = Field(
        default=None,
        description="Five-field cron, or @hourly … @yearly.",
        examples=["0 9 * * 1-5"],
    )
    every: Annotated[str, Field(strict=True, max_length=100)] | Seconds | None = Field(
        default=None,
        description="Fixed spacing from run_at whatever the clocks do: an ISO 8601 duration or seconds.",
        examples=["PT15M", 90],
    )
    timezone: Annotated[str, Field(strict=True, max_length=100)] = Field(
        default="UTC", description="IANA name of the wall clock that rrule and cron follow."
    )
    on_missed: OnMissed = Field(
        default=OnMissed.LATEST,
        description="What happens to occurrences that passed while nothing could run.",
    )
    max_lateness: Seconds | None = Field(
        default=None,
        description="Seconds: an occurrence later than this is reported as missed instead of emitted.",
    )
    name: Annotated[str, Field(strict=True, max_length=200)] | None = Field(
        default=None, description="What people read in the console and the command line."
    )
    priority: Priority | None = Field(
        default=None, description="Who goes first when more is due than can go out; normal where left out."
    )
    run: RunPolicy | None = Field(
        default=None,
        description="The job is tracked: each occurrence is a run with attempts, until it is done or given up.",
    )
    target: Target | None = Field(
        default=None, description="A worker does the work, and the job is tracked."
    )
    route: Route | None = Field(default=None, description="The event's routing key becomes due.ROUTE.")

    @field_validator("route")  # of the few that have one: a validator of the model would be called for all
    @classmethod
    def _one_way_to_go(cls, route: str | None, others: ValidationInfo) -> str | None:
        if route is not None and others.data.get("target") is not None:
            raise ValueError("cannot stand beside target; a worker's queue is known by the target alone")
        return route


class ScheduleCancel(JobCommand):
    """Stop a job, also one whose request has not arrived yet."""

    kind: ClassVar[str] = "cancel"


class SchedulePause(JobCommand):
    """Emit nothing until resumed."""

    kind: ClassVar[str] = "pause"


class ScheduleResume(JobCommand):
    """Go on; `on_missed` decides about what passed meanwhile."""

    kind: ClassVar[str] = "resume"


class ScheduleTrigger(JobCommand):
    """Emit one extra occurrence now and leave the schedule as it is."""

    kind: ClassVar[str] = "trigger"


class FieldProblem(ContractMessage):
    """One thing wrong with a command."""

    field: str
    problem: str


Status = Literal["scheduled", "cancelled", "unchanged", "superseded"]


class ScheduleAccepted(ContractMessage):
    """The answer to a command that was stored."""

    id: JobId
    status: Status
    next_run_at: Instant | None


class ScheduleRejected(ContractMessage):
    """The answer to a command that can never succeed."""

    id: str | None = Field(description="The command's id where one could be read.")
    errors: list[FieldProblem]


class ScheduleDue(ContractMessage):
    """An occurrence is due."""

    event_id: JobId = Field(description="The same for every emission of the same occurrence.")
    job_id: JobId
    job_type: str
    payload: dict[str, Any]
    due_at: Instant
    emitted_at: Instant
    occurrence: int = Field(ge=1, description="Counts emitted occurrences from 1.")
    missed: int = Field(ge=0, description="How many occurrences were folded into this one.")
    next_run_at: Instant | None = Field(description="null after the last.")
    tenant: Tenant | None = Field(default=None, description="Where it is not `default`.")
    target: Target | None = Field(default=None, description="What a worker is to do.")
    run: DueRun | None = Field(default=None, description="Of a tracked job: which attempt this is.")


class ScheduleMissed(ContractMessage):
    """Occurrences were passed over."""

    id: JobId = Field(description="The same for every emission of the same message; also its message_id.")
    job_id: JobId
    job_type: str
    missed: list[Instant] = Field(max_length=MAX_MISSED_LISTED, description="The newest of them, oldest first.")
    missed_count: int = Field(ge=1)
    reason: Literal["skip", "max_lateness", "latest", "limit", "overlap"]
