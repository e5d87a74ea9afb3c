"""The heartbeat message of a worker."""

from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import FailFast, Field

from scheduler.domain.message_base import ContractMessage, Instant

BEAT_SECONDS = 10.0
OFFER_TENANTS_HEADER = "x-offer-tenants"  # a header: consumers of release 0.2 reject unknown fields in the body
OFFER_TENANTS_BYTES = 64 * 1024
MAX_BUSY = 20  # attempts in one message
MAX_OFFERS = 1000
_Count = Annotated[int, Field(ge=0, le=2**62, strict=True)]
_Text = Annotated[str, Field(strict=True, max_length=200)]


class Busy(ContractMessage):
    """An attempt in progress."""

    event_id: UUID
    attempt: Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
    what: _Text = Field(description="Webhook host, command name or handler name.")
    since: Instant = Field(description="By the worker's clock.")


class ScheduleWorker(ContractMessage):
    """Heartbeat of a worker, sent every ten seconds: identity, offers, current work and counts."""

    kind: ClassVar[str] = "worker"
    about: ClassVar[str] = "id"

    id: UUID = Field(description="Identifies the process; new after each start.")
    host: _Text
    pid: _Count
    version: _Text
    started_at: Instant = Field(description="By the worker's clock.")
    offers: Annotated[tuple[_Text, ...], FailFast()] = Field(
        max_length=MAX_OFFERS, description="Work it accepts: `webhooks`, `command.NAME`, `handler.JOB_TYPE`.",
    )
    in_flight: _Count = Field(description="Number of attempts in progress.")
    busy: Annotated[tuple[Busy, ...], FailFast()] = Field(
        default=(), max_length=MAX_BUSY, description="The longest-running attempts.",
    )
    succeeded: _Count = Field(default=0, description="Attempts since its start, by outcome.")
    failed: _Count = 0
    snoozed: _Count = 0
    beat: _Count = Field(description="Number of this message; the latest one counts.")
    leaving: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="The worker has stopped; this is its last message."
    )
