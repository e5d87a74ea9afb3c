"""The messages about runs: the policy of a tracked job, what became of an attempt, and what became of a run."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self
from uuid import UUID

from pydantic import Field, model_validator

from scheduler.domain.messages.base import LIFETIME, Command, ContractMessage, Instant, Seconds, Tenant

WEEK = 604_800  # seconds: nothing in a policy lasts longer
_Timeout = Annotated[float, Field(ge=1, le=WEEK, allow_inf_nan=False, strict=True)]
_Delay = Annotated[float, Field(ge=0, le=WEEK, allow_inf_nan=False, strict=True)]
MAX_ATTEMPTS = 100


class Overlap(StrEnum):
    """What an occurrence does while a run of the same job is open."""

    ALLOW = "allow"
    SKIP = "skip"
    WAIT = "wait"


class RunPolicy(ContractMessage):
    """How long an attempt may take, how often it is tried and when."""

    start_timeout: _Timeout = Field(
        default=3600.0, description="Seconds that an attempt may lie in a queue, until `running` is reported.",
    )
    timeout: _Timeout = Field(
        default=300.0,
        description="Seconds that an attempt may take, from its first `running` to its final result.",
    )
    max_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS, strict=True)] = 3
    backoff: Literal["exponential", "linear", "fixed"] | Annotated[
        tuple[_Delay, ...], Field(min_length=1, max_length=MAX_ATTEMPTS, fail_fast=True)
    ] = Field(
        default="exponential",
        description="Before attempt n+1: delay·2ⁿ⁻¹, delay·n, delay, or a list of seconds whose last repeats.",
    )
    delay: _Delay = 60.0
    max_delay: _Delay = 3600.0
    overlap: Overlap = Field(default=Overlap.ALLOW, description="While a run of the same job is open.")


class DueRun(ContractMessage):
    """Which attempt an event is."""

    attempt: int = Field(ge=1, description="Counts deliveries, so that each can be told apart.")
    attempts_left: int = Field(ge=0, description="How many more are made if this one fails.")
    max_attempts: int = Field(ge=1)
    deadline: Instant = Field(description="Until when `running`, or the final result, is awaited.")
    timeout: float | None = Field(default=None, description="With a target: the policy's.")
    max_delay: float | None = Field(default=None, description="With a target: the policy's.")


class ResultStatus(StrEnum):
    """What a worker says of an attempt."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SNOOZED = "snoozed"


class ScheduleResult(ContractMessage):
    """What became of an attempt, or that it is still at work."""

    kind: ClassVar[str] = "result"
    about: ClassVar[str] = "event_id"

    event_id: UUID
    attempt: Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
    status: ResultStatus
    error: Annotated[str, Field(strict=True)] | None = Field(
        default=None, description="Kept up to 4,000 characters."
    )
    output: Any = Field(default=None, description="Any JSON, kept up to 64 KiB.")
    retry: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="With `failed`: false gives the run up at once."
    )
    retry_in: Seconds | None = Field(
        default=None,
        description="Seconds: with `failed` instead of the backoff; with `snoozed` the event comes again then.",
    )
    heartbeat: Annotated[float, Field(ge=1, le=LIFETIME, allow_inf_nan=False, strict=True)] | None = Field(
        default=None, description="With `running`: a further sign of life comes within so many seconds."
    )
    progress: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)] | None = None
    worker: Annotated[str, Field(strict=True, max_length=200)] | None = None
    tenant: Tenant | None = Field(default=None, description="Where given, it must be the job's.")
    started_at: Instant | None = Field(default=None, description="By the worker's clock; for durations only.")
    finished_at: Instant | None = Field(default=None, description="By the worker's clock; for durations only.")

    @model_validator(mode="after")
    def _snooze_says_when(self) -> Self:
        if self.status is ResultStatus.SNOOZED and self.retry_in is None:
            raise ValueError("retry_in: is required with snoozed")
        return self


class ScheduleRetry(Command):
    """Give a run that was given up or cancelled a fresh set of attempts, at once."""

    kind: ClassVar[str] = "retry"
    about: ClassVar[str] = "event_id"

    event_id: UUID


RecordedStatus = Literal["recorded", "unchanged", "superseded"]


class ScheduleRecorded(ContractMessage):
    """The answer to a result."""

    event_id: UUID
    status: RecordedStatus


class ScheduleFinished(ContractMessage):
    """A run has succeeded, was given up or cancelled."""

    event_id: UUID
    job_id: UUID
    job_type: str
    tenant: Tenant | None = Field(default=None, description="Where it is not `default`.")
    due_at: Instant
    status: Literal["succeeded", "dead", "cancelled"]
    attempts: int = Field(ge=0, description="How many were delivered.")
    started_at: Instant | None
    finished_at: Instant
    error: str | None
    output: Any
    output_cut: bool = Field(default=False, description="`output` is only the beginning of what was reported.")
