"""What a worker says of itself every ten seconds."""

from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import FailFast, Field

from scheduler.domain.messages.base import ContractMessage, Instant

BEAT_SECONDS = 10.0
OFFER_TENANTS_HEADER = "x-offer-tenants"  # a header: consumers of release 0.2 reject unknown fields in the body
OFFER_TENANTS_BYTES = 64 * 1024
MOST_BUSY = 20  # of what a worker does are told
MOST_OFFERS = 1000
_Count = Annotated[int, Field(ge=0, le=2**62, strict=True)]
_Text = Annotated[str, Field(strict=True, max_length=200)]


class Busy(ContractMessage):
    """One thing that a worker is doing."""

    event_id: UUID
    attempt: Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
    what: _Text = Field(description="A webhook's host, or a command's or a handler's name.")
    since: Instant = Field(description="By the worker's clock.")


class ScheduleWorker(ContractMessage):
    """A worker lives: who and where it is, what it offers and does, and how much it has done."""

    kind: ClassVar[str] = "worker"
    about: ClassVar[str] = "id"

    id: UUID = Field(description="Of this process: another one after each start.")
    host: _Text
    pid: _Count
    version: _Text
    started_at: Instant = Field(description="By the worker's clock.")
    offers: Annotated[tuple[_Text, ...], FailFast()] = Field(
        max_length=MOST_OFFERS, description="What it takes: `webhooks`, `command.NAME`, `handler.JOB_TYPE`.",
    )
    in_flight: _Count = Field(description="How many attempts it is busy with.")
    busy: Annotated[tuple[Busy, ...], FailFast()] = Field(
        default=(), max_length=MOST_BUSY, description="Those that it has been busy with for longest.",
    )
    succeeded: _Count = Field(default=0, description="Attempts since its start, by how they ended.")
    failed: _Count = 0
    snoozed: _Count = 0
    beat: _Count = Field(description="Counts what it said of itself: the latest holds.")
    leaving: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="It has stopped: the last that is heard of it."
    )
