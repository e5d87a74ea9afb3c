"""Messages about calendars."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from scheduler.domain.message_base import Command, ContractMessage
from scheduler.domain.messages.jobs import CalendarName, FieldProblem, Weekday
from scheduler.domain.tenants import DEFAULT_TENANT, OWNER_PATTERN

Owner = Annotated[str, Field(strict=True, pattern=OWNER_PATTERN)]
CalendarStatus = Literal["stored", "unchanged", "superseded"]
_Text = Annotated[str, Field(strict=True)]
_Dates = dict[_Text, Annotated[str, Field(strict=True, max_length=200)]]


class ScheduleCalendar(Command):
    """Store a calendar, or replace the calendar with the same name and owner."""

    kind: ClassVar[str] = "calendar"
    about: ClassVar[str] = "name"

    name: CalendarName
    tenant: Owner = Field(default=DEFAULT_TENANT, description="The owner; `*` for all tenants.")
    weekend: list[Weekday] | None = Field(default=None, description="Weekdays that are closed.")
    closed: _Dates | None = Field(
        default=None, description="Closed dates with names for display. `closed` and `open` have at most 10,000.",
        examples=[{"2026-12-25": "Christmas Day"}],
    )
    open: _Dates | None = Field(
        default=None, description="Open dates with display names; they win over `closed` and `weekend`."
    )
    valid_until: _Text | None = Field(
        default=None, description="The last date on which `closed` and `open` count.", examples=["2030-12-31"]
    )


class CalendarAccepted(ContractMessage):
    """Reply to a ScheduleCalendar that was stored; its type is ScheduleAccepted."""

    name: CalendarName
    tenant: Owner
    status: CalendarStatus
    version: int = Field(ge=1, description="Counts the changes.")


class CalendarRejected(ContractMessage):
    """Reply to a ScheduleCalendar that can never succeed; its type is ScheduleRejected."""

    name: str | None = Field(description="The calendar's name, if it is readable.")
    errors: list[FieldProblem]
