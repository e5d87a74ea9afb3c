"""Job definitions: a request's fields with its schedule resolved."""

from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from scheduler.domain.caller import Caller
from scheduler.domain.errors import Rejected
from scheduler.domain.instants import rfc3339
from scheduler.domain.messages import (
    DEFAULT_TENANT,
    Command,
    OnMissed,
    Priority,
    RunPolicy,
    ScheduleRequest,
    ScheduleTrigger,
)
from scheduler.domain.recurrence import Spec, StartSource, resolve

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


# Immutable by convention. Not `frozen`, because creating frozen instances takes several times as long.
@dataclass(slots=True)
class Incoming:
    """A command with its message properties."""

    command: Command
    about: str  # the id of its job or run, in Postgres's format
    payload: str = "{}"
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    tenant: str = DEFAULT_TENANT
    caller: Caller | None = None  # None: over AMQP, without a user verified by the broker
    message_id: str | None = None  # identifies a redelivered trigger without issued_at
    repeated: bool = False  # a trigger with the same `duplicate_key` was stored before
    schedule: Spec | Rejected | None = None  # precomputed schedule of a request

    @property
    def duplicate_key(self) -> tuple[str, ...] | None:
        """The identity of a trigger, the same in a redelivery: its issued_at, or else its message_id."""
        if isinstance(self.command, ScheduleTrigger) and self.command.issued_at is not None:
            return "issued_at", rfc3339(self.command.issued_at)
        return None if self.message_id is None else (self.message_id,)


@dataclass(slots=True)
class Definition:
    """Definition of a job; its fields and the spec's fields are columns."""

    job_type: str
    payload: str  # JSON text, unchanged
    on_missed: OnMissed
    max_lateness: timedelta | None
    run: RunPolicy | None
    name: str | None
    priority: Priority | None  # as given: without one, events have no priority property
    route: str | None
    target: str | None  # JSON text
    correlation_id: str | None
    traceparent: str | None
    tracestate: str | None
    spec: Spec


def define(incoming: Incoming, now: datetime) -> Definition:
    """Return the definition from a request stored at `now`. Raises Rejected."""
    request = incoming.command
    assert isinstance(request, ScheduleRequest)  # noqa: S101 - no other command defines a job
    lateness, target = request.max_lateness, request.target
    return Definition(
        request.job_type, incoming.payload, request.on_missed,
        None if lateness is None else timedelta(seconds=lateness),
        request.run if target is None else request.run or RunPolicy(),
        request.name, request.priority, request.route,
        None if target is None else target.model_dump_json(exclude_unset=True),
        incoming.correlation_id, incoming.traceparent, incoming.tracestate,
        _schedule(incoming, request, now),
    )


def can_precompute_schedule(incoming: Incoming) -> bool:
    """Return whether a request has a rule with a start, which does not depend on the time of storing."""
    request = incoming.command
    if not isinstance(request, ScheduleRequest) or request.rrule is None:
        return False
    return request.run_at is not None or "DTSTART" in request.rrule.upper()


def precompute_schedule(incoming: Incoming) -> None:
    """Resolve the schedule before rows are locked, because it may take milliseconds."""
    assert isinstance(incoming.command, ScheduleRequest)  # noqa: S101 - no other command has a schedule
    try:
        incoming.schedule = _resolve_request(incoming.command, _ANY_TIME)
    except Rejected as rejected:
        incoming.schedule = rejected.without_traceback()


def _schedule(incoming: Incoming, request: ScheduleRequest, now: datetime) -> Spec:
    if isinstance(incoming.schedule, Rejected):
        raise incoming.schedule
    return incoming.schedule or _resolve_request(request, now)


def _resolve_request(request: ScheduleRequest, now: datetime) -> Spec:
    return resolve(
        run_at=request.run_at, rrule=request.rrule, cron=request.cron, every=request.every,
        timezone=request.timezone if "timezone" in request.model_fields_set else None, stored_at=now,
    )


def keep_start(definition: Definition, stored: Spec) -> Definition:
    """Return the definition with the stored start if its request has none; the schedules must be the same."""
    spec = definition.spec
    if spec.start_source != StartSource.STORED:
        return definition
    return replace(definition, spec=replace(
        spec, dtstart=stored.dtstart, starts_at=stored.starts_at, ends_at=stored.ends_at,
    ))


# The caller, the trace and the time of storing do not matter when two requests are compared.
_NOT_COMPARED = {"correlation_id", "traceparent", "tracestate", "spec"}
_DERIVED = {"dtstart", "starts_at", "ends_at", "start_source"}
_compared_values = attrgetter(
    *(field.name for field in fields(Definition) if field.name not in _NOT_COMPARED),
    *(f"spec.{field.name}" for field in fields(Spec) if field.name not in _DERIVED),
)


def content(definition: Definition, *, start_given: bool) -> tuple[Any, ...]:
    """Return the content of a request as strings, which are always comparable."""
    start = definition.spec.starts_at.timestamp() if start_given else None
    return tuple(map(str, (*_compared_values(definition), start)))
