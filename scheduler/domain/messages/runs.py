"""Messages about runs: policy, results, retries and finished runs."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self
from uuid import UUID

from pydantic import Field, ValidationInfo, field_validator, model_validator

from scheduler.domain.message_base import LIFETIME, Command, ContractMessage, Instant, Seconds, Tenant

WEEK = 604_800  # seconds: the longest time in a policy
_Timeout = Annotated[float, Field(ge=1, le=WEEK, allow_inf_nan=False, strict=True)]
_Delay = Annotated[float, Field(ge=0, le=WEEK, allow_inf_nan=False, strict=True)]
MAX_ATTEMPTS = 100
MAX_RUNNING = 100


class Overlap(StrEnum):
    """Handling of an occurrence while a run of the same job is open."""

    ALLOW = "allow"
    SKIP = "skip"
    WAIT = "wait"


class RunPolicy(ContractMessage):
    """Timeouts and retries of a tracked job."""

    start_timeout: _Timeout = Field(
        default=3600.0, description="Seconds that an attempt may wait in a queue until `running` is reported.",
    )
    timeout: _Timeout = Field(
        default=300.0,
        description="Seconds from the first `running` of an attempt to its final result.",
    )
    max_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS, strict=True)] = 3
    backoff: Literal["exponential", "linear", "fixed"] | Annotated[
        tuple[_Delay, ...], Field(min_length=1, max_length=MAX_ATTEMPTS, fail_fast=True)
    ] = Field(
        default="exponential",
        description="Wait before attempt n+1: delay·2ⁿ⁻¹, delay·n, delay, or a list of seconds (last repeats).",
    )
    delay: _Delay = 60.0
    max_delay: _Delay = 3600.0
    overlap: Overlap = Field(default=Overlap.ALLOW, description="Applies while a run of the same job is open.")
    max_running: Annotated[int, Field(ge=1, le=MAX_RUNNING, strict=True)] | None = Field(
        default=None, description="Number of open runs from which `overlap` applies; default 1. Not with `allow`."
    )

    @field_validator("max_running")
    @classmethod
    def _not_with_allow(cls, max_running: int | None, others: ValidationInfo) -> int | None:
        if max_running is not None and others.data.get("overlap") is Overlap.ALLOW:
            raise ValueError("needs overlap skip or wait: allow does not limit the open runs")
        return max_running

    @property
    def most_open(self) -> int:
        """Number of open runs from which `overlap` applies."""
        return self.max_running or 1


class DueRun(ContractMessage):
    """The attempt of an event."""

    attempt: int = Field(ge=1, description="Delivery number, from 1.")
    attempts_left: int = Field(ge=0, description="Further attempts if this one fails.")
    max_attempts: int = Field(ge=1)
    deadline: Instant = Field(description="`running` or the final result must arrive by then.")
    timeout: float | None = Field(default=None, description="With a target: the policy's timeout.")
    max_delay: float | None = Field(default=None, description="With a target: the policy's max_delay.")


class ResultStatus(StrEnum):
    """Status of an attempt as reported by a worker."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SNOOZED = "snoozed"


class ScheduleResult(ContractMessage):
    """The outcome of an attempt, or a sign that it is still running."""

    kind: ClassVar[str] = "result"
    about: ClassVar[str] = "event_id"

    event_id: UUID
    attempt: Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
    status: ResultStatus
    error: Annotated[str, Field(strict=True)] | None = Field(
        default=None, description="Stored up to 4,000 characters."
    )
    output: Any = Field(default=None, description="Any JSON, stored up to 64 KiB.")
    retry: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="With `failed`: false ends the run as dead without a retry."
    )
    retry_in: Seconds | None = Field(
        default=None,
        description="Seconds. With `failed`: replaces the backoff. With `snoozed`: the event is sent again then.",
    )
    heartbeat: Annotated[float, Field(ge=1, le=LIFETIME, allow_inf_nan=False, strict=True)] | None = Field(
        default=None, description="With `running`: the next report must arrive within this number of seconds."
    )
    progress: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)] | None = None
    worker: Annotated[str, Field(strict=True, max_length=200)] | None = None
    tenant: Tenant | None = Field(default=None, description="Must be the job's tenant, if present.")
    started_at: Instant | None = Field(default=None, description="Worker's clock; used for durations only.")
    finished_at: Instant | None = Field(default=None, description="Worker's clock; used for durations only.")

    @model_validator(mode="after")
    def _snoozed_needs_retry_in(self) -> Self:
        if self.status is ResultStatus.SNOOZED and self.retry_in is None:
            raise ValueError("retry_in: is required with snoozed")
        return self


class ScheduleRetry(Command):
    """Retry a dead or cancelled run now, with a new set of attempts."""

    kind: ClassVar[str] = "retry"
    about: ClassVar[str] = "event_id"

    event_id: UUID


RecordedStatus = Literal["recorded", "unchanged", "superseded"]


class ScheduleRecorded(ContractMessage):
    """Reply to a result."""

    event_id: UUID
    status: RecordedStatus


class RunTrigger(ContractMessage):
    """Who triggered a run, and how."""

    via: Literal["api", "amqp", "cli", "console"]
    who: str | None


class ScheduleFinished(ContractMessage):
    """A run succeeded, is dead or was cancelled."""

    event_id: UUID
    job_id: UUID
    job_type: str
    tenant: Tenant | None = Field(default=None, description="Present if it is not `default`.")
    due_at: Instant
    status: Literal["succeeded", "dead", "cancelled"]
    attempts: int = Field(ge=0, description="Number of delivered attempts.")
    started_at: Instant | None
    finished_at: Instant
    error: str | None
    output: Any
    output_cut: bool = Field(default=False, description="`output` was truncated.")
    triggered_by: RunTrigger | None = Field(default=None, description="Present if the run was triggered.")
