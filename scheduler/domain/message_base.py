"""Base classes and field types of messages."""

from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from scheduler.domain.instants import parse_instant, rfc3339
from scheduler.domain.tenants import DEFAULT_TENANT, TENANT_PATTERN


def _instant(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a string: an RFC 3339 date and time")  # noqa: TRY004 - pydantic's protocol
    return parse_instant(value)


Instant = Annotated[
    datetime,
    BeforeValidator(_instant),
    PlainSerializer(rfc3339, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
UUID_PATTERN = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # in Postgres's format
JobId = UUID
LIFETIME = 100 * 366 * 86400  # seconds: the longest delay
Seconds = Annotated[float, Field(ge=0, le=LIFETIME, allow_inf_nan=False, strict=True)]
Tenant = Annotated[str, Field(strict=True, pattern=TENANT_PATTERN)]
MAX_MISSED = 100  # occurrences in a ScheduleMissed; also those emitted by `on_missed: all`


class ContractMessage(BaseModel):
    """A JSON object with exactly these fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Command(ContractMessage):
    """Fields of every command."""

    kind: ClassVar[str]  # its routing key
    about: ClassVar[str]  # the field with the job or run id

    issued_at: Instant | None = Field(
        default=None,
        description="Orders the host's commands for one id: the latest wins. "
        "A command without it counts as issued when it is stored.",
        examples=["2026-11-30T17:21:09.123456Z"],
    )
    tenant: Tenant = Field(default=DEFAULT_TENANT, description="The owner of the job.")
