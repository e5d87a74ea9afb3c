"""Messages about jobs: commands, replies and events."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, final

from pydantic import Field, ValidationInfo, field_validator

from scheduler.domain.message_base import (
    MAX_MISSED,
    Command,
    ContractMessage,
    Instant,
    JobId,
    Seconds,
    Tenant,
)
from scheduler.domain.messages.runs import DueRun, RunPolicy
from scheduler.domain.recurrence.business_calendar import OnClosed
from scheduler.domain.targets.target import Target
from scheduler.domain.tenants import CALENDAR_NAME_PATTERN


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
_TimeOfDay = Annotated[str, Field(strict=True, pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
Weekday = Literal["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
CalendarName = Annotated[str, Field(strict=True, pattern=CALENDAR_NAME_PATTERN)]
Route = Annotated[str, Field(strict=True, max_length=200, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")]


class SendingWindow(ContractMessage):
    """The hours in which events may be emitted; `from` is inside, `to` is not."""

    opens: _TimeOfDay = Field(alias="from")
    to: _TimeOfDay = Field(description="Not after `from`: on the next day.")
    days: Annotated[list[Weekday], Field(min_length=1)] | None = Field(
        default=None, description="The days on which the window opens; default all."
    )


class JobCommand(Command):
    """A command for one job."""

    about: ClassVar[str] = "id"

    id: JobId = Field(description="The host's own key for the job.")


@final  # for pydantic the defaults that common_request.py sets would be fields of a subclass
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
        "Without an offset it is local time in `timezone`. `now` is the instant at which the request is stored.",
        examples=["2026-12-01T09:00:00", "2026-12-01T08:00:00Z", "now"],
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
    manual: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="The job has no schedule and runs only when it is triggered. Excludes the schedule fields.",
    )
    paused: Annotated[bool, Field(strict=True)] | None = Field(
        default=None,
        description="true stores the job paused, false resumes it; without it the state stays. Ordered like a "
        "pause or resume with the request's issued_at.",
    )
    on_missed: OnMissed = Field(
        default=OnMissed.LATEST,
        description="How to handle occurrences that passed while nothing could run.",
    )
    max_lateness: Seconds | None = Field(
        default=None,
        description="Seconds. An occurrence later than this is reported as missed instead of emitted.",
    )
    calendar: CalendarName | None = Field(
        default=None, description="Name of a calendar; on its closed days on_closed applies."
    )
    on_closed: OnClosed | None = Field(
        default=None, description="Handling of an occurrence on a closed day; default skip. Needs a calendar."
    )
    window: SendingWindow | None = Field(
        default=None, description="The hours, in timezone, in which the event may be emitted."
    )
    jitter: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False, strict=True)] | None = Field(
        default=None, description="Seconds: each occurrence is emitted up to this much later."
    )
    name: Annotated[str, Field(strict=True, max_length=200)] | None = Field(
        default=None, description="Display name in the console and the command line."
    )
    description: Annotated[str, Field(strict=True, max_length=2000)] | None = Field(
        default=None, description="Free text, shown in the console, the API and the command line."
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

    @field_validator("on_closed")
    @classmethod
    def _needs_calendar(cls, on_closed: OnClosed | None, others: ValidationInfo) -> OnClosed | None:
        if on_closed is not None and others.data.get("calendar", "") is None:
            raise ValueError("needs a calendar: without one no day is closed")
        return on_closed

    @field_validator("route")  # not a model validator, which would run for every request
    @classmethod
    def _no_route_with_target(cls, route: str | None, others: ValidationInfo) -> str | None:
        if route is not None and others.data.get("target") is not None:
            raise ValueError("cannot be combined with target, which determines the queue; remove one of them")
        return route


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
    nominal_at: Instant | None = Field(
        default=None, description="The instant that the rule alone gives. Present if the occurrence was moved."
    )
    moved: list[Literal["calendar", "window", "jitter"]] | None = Field(
        default=None, description="What changed the instant. Present if the occurrence was moved."
    )
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
    reason: Literal["skip", "max_lateness", "latest", "limit", "overlap", "calendar", "merged"]


class ScheduleReplanned(ContractMessage):
    """A change of a zone's rules or of a calendar moved a job's next run."""

    job_id: JobId
    job_type: str
    tenant: Tenant | None = Field(default=None, description="Present if it is not `default`.")
    old_next_run_at: Instant | None
    next_run_at: Instant | None = Field(description="null if no occurrence is left.")
    reason: Literal["zone", "calendar"]
    name: str = Field(description="The zone or the calendar.")
    version: str | int = Field(description="Version of the zone data, such as 2026c, or of the calendar.")
