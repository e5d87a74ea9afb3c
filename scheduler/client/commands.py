"""Validate and encode commands from Python values."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from scheduler.client.errors import CommandRejected
from scheduler.domain.calendars import any_calendar
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.job import apply
from scheduler.domain.message_parser import parse_command
from scheduler.domain.messages import COMMAND_MODELS, JobCommand

Id = UUID | str
Payload = Mapping[str, Any] | BaseModel
_ANY_SIZE = 1 << 40  # the sidecar enforces its own limit on payloads


def _utc_now() -> datetime:
    return datetime.now(UTC)


class RequestFields(TypedDict, total=False):
    """The optional fields of a request, as Python values."""

    run_at: datetime | timedelta | str  # a timedelta: that long from now; "now": when the request is stored
    rrule: str
    cron: str
    every: timedelta | float | str
    timezone: str | ZoneInfo
    manual: bool  # no schedule: the job runs only when it is triggered
    paused: bool  # True stores the job paused, False resumes it
    on_missed: Literal["latest", "all", "skip"]
    max_lateness: timedelta | float
    calendar: str
    on_closed: Literal["skip", "next", "previous", "nearest", "next_in_month"]
    window: Mapping[str, Any]  # {"from": "09:00", "to": "18:00", "days": ["MO"]}
    jitter: timedelta | float
    name: str
    description: str
    tenant: str
    priority: Literal["high", "normal", "low"]
    route: str
    run: Mapping[str, Any]  # the job is tracked: a RunPolicy's fields, {} for the defaults
    target: Mapping[str, Any]  # {"webhook": {…}} or {"command": {…}}, and "pool": a worker does the work
    issued_at: datetime
    correlation_id: str
    headers: Mapping[str, str]


class CommandFields(TypedDict, total=False):
    """The optional fields of every other command."""

    tenant: str
    issued_at: datetime
    correlation_id: str
    headers: Mapping[str, str]


class CalendarFields(CommandFields, total=False):
    """The optional fields of a calendar, as Python values; `tenant` is its owner."""

    weekend: Sequence[Literal["MO", "TU", "WE", "TH", "FR", "SA", "SU"]]
    closed: Mapping[date | str, str]
    open: Mapping[date | str, str]
    valid_until: date | str


# All other fields of a request are sent as they are, a timedelta in seconds; the sidecar's rules validate them.
_ENCODED = CommandFields.__annotations__.keys() | {"run_at"}


@dataclass(frozen=True, slots=True)
class OutgoingCommand:
    """A command to send: its routing key, the fields of its body, and its AMQP properties."""

    kind: str
    fields: dict[str, Any]
    correlation_id: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def message_type(self) -> str:
        """The name of the message, as in the contract."""
        return COMMAND_MODELS[self.kind].__name__

    def body(self, issued_at: Callable[[], datetime]) -> bytes:
        """Encode the body, with an `issued_at` if it has none."""
        fields = self.fields if "issued_at" in self.fields else self.fields | {"issued_at": rfc3339(issued_at())}
        return encode(fields)


def request(
    id: UUID | str, job_type: str, payload: Payload | None, when: RequestFields,
    now: Callable[[], datetime] = _utc_now
) -> OutgoingCommand:
    """Build a ScheduleRequest; raises CommandRejected if the sidecar would reject it."""
    if unknown := when.keys() - RequestFields.__annotations__.keys():
        raise TypeError(
            f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(RequestFields.__annotations__)}"
        )
    fields = _common(id, when) | {"job_type": job_type}
    if payload is not None:
        fields["payload"] = _payload(payload)
    if when.get("run_at") is not None:
        fields["run_at"] = _run_at(when["run_at"], now, zoned="timezone" in when)
    fields |= {name: _plain(value) for name, value in when.items() if name not in _ENCODED}
    return _checked(OutgoingCommand("request", fields, **_message_headers(when)))


def order(kind: str, id: UUID | str, sending: CommandFields) -> OutgoingCommand:
    """Build a cancel, pause, resume or trigger for a job, or a retry for a run."""
    if unknown := sending.keys() - CommandFields.__annotations__.keys():
        raise TypeError(
            f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(CommandFields.__annotations__)}"
        )
    return _checked(OutgoingCommand(kind, _common(id, sending, COMMAND_MODELS[kind].about),
                                    **_message_headers(sending)))


def calendar(name: str, content: CalendarFields) -> OutgoingCommand:
    """Build a ScheduleCalendar; raises CommandRejected if the sidecar would reject it."""
    if unknown := content.keys() - CalendarFields.__annotations__.keys():
        raise TypeError(
            f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(CalendarFields.__annotations__)}"
        )
    fields = _common(name, content, "name")
    if "weekend" in content:
        fields["weekend"] = list(_of_type("weekend", content["weekend"], Iterable, "a list of days"))
    if "closed" in content:
        fields["closed"] = _dates("closed", content["closed"])
    if "open" in content:
        fields["open"] = _dates("open", content["open"])
    if "valid_until" in content:
        fields["valid_until"] = str(content["valid_until"])
    return _checked(OutgoingCommand("calendar", fields, **_message_headers(content)))


def _dates(field: str, names: object) -> dict[str, str]:
    return {str(day): name for day, name in _of_type(field, names, Mapping, "a mapping of dates to names").items()}


def _of_type(field: str, value: object, expected: type[Any] | tuple[type[Any], ...], description: str) -> Any:
    """Return the value; raises CommandRejected with the field unless it has the type."""
    if not isinstance(value, expected):
        problem = f"must be {description}, not of type {type(value).__name__}"
        raise CommandRejected([Problem(field, problem)])
    return value


def encode(fields: dict[str, Any]) -> bytes:
    """Encode a body; raises CommandRejected for values that are not JSON."""
    try:
        return _json(fields).encode()
    except (TypeError, ValueError, RecursionError):
        raise CommandRejected(_not_json(fields)) from None


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _not_json(fields: dict[str, Any]) -> Iterator[Problem]:
    for name, value in fields.items():
        try:
            _json(value)
        except (TypeError, ValueError, RecursionError) as error:
            yield Problem(name, f"is not JSON: {error}")


def _common(
    id: UUID | str, sending: RequestFields | CommandFields | CalendarFields, about: str = "id"
) -> dict[str, Any]:
    fields: dict[str, Any] = {about: str(id)}
    if (given := sending.get("issued_at")) is not None:
        issued_at: datetime = _of_type("issued_at", given, datetime, "a datetime")
        if issued_at.tzinfo is None:
            raise CommandRejected([Problem("issued_at", "must be aware: datetime.now(UTC)")])
        fields["issued_at"] = rfc3339(issued_at)
    if "tenant" in sending:
        fields["tenant"] = sending["tenant"]
    return fields


def _message_headers(sending: RequestFields | CommandFields | CalendarFields) -> dict[str, Any]:
    headers = _of_type("headers", sending.get("headers") or {}, Mapping, "a mapping")
    correlation_id = _of_type("correlation_id", sending.get("correlation_id") or "", str, "text")
    return {"correlation_id": correlation_id or None, "headers": dict(headers)}


def _payload(payload: object) -> dict[str, Any]:
    if isinstance(payload, BaseModel):
        try:
            return payload.model_dump(mode="json")
        except ValueError as error:  # includes pydantic's errors
            raise CommandRejected([Problem("payload", f"is not JSON: {error}")]) from None
    return dict(_of_type("payload", payload, Mapping, "a mapping or a pydantic model"))


def _run_at(value: object, now: Callable[[], datetime], *, zoned: bool) -> str:
    """Format a time; a naive time is local to the request's `timezone`, and an error without one."""
    moment: datetime | timedelta | str = _of_type(
        "run_at", value, (datetime, timedelta, str), "a datetime, a timedelta or RFC 3339 text"
    )
    if isinstance(moment, timedelta):
        try:
            return rfc3339(now() + moment)
        except OverflowError:
            raise CommandRejected([Problem("run_at", "is too far from now")]) from None
    if not zoned and _naive(moment):
        raise CommandRejected([Problem(
            "run_at", "is naive: add a zone, as in datetime.now(UTC) or 2026-12-01T08:00:00Z, or give `timezone`"
        )])
    return moment.isoformat() if isinstance(moment, datetime) else moment


def _naive(moment: datetime | str) -> bool:
    try:
        return (moment if isinstance(moment, datetime) else datetime.fromisoformat(moment)).utcoffset() is None
    except (ValueError, TypeError):
        return False  # not a date and time: the sidecar's rules report it


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.key if isinstance(value, ZoneInfo) else value


def _checked(outgoing: OutgoingCommand) -> OutgoingCommand:
    """Validate the command with the sidecar's rules; raises CommandRejected."""
    try:
        incoming = parse_command(outgoing.kind, encode(outgoing.fields), max_payload_bytes=_ANY_SIZE)
        if isinstance(incoming.command, JobCommand):
            apply(None, incoming, datetime.now(UTC), any_calendar)
    except Rejected as rejected:
        raise CommandRejected(rejected.problems) from None
    return outgoing
