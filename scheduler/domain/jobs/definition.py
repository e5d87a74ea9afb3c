"""Job definitions: a request's fields with its schedule resolved."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter, itemgetter
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
from scheduler.domain.recurrence import RUN_NOW, Spec, StartSource, plain_one_shot, resolve, resolve_fields
from scheduler.domain.recurrence.adjustment_fields import spec_fields
from scheduler.domain.schedule_fields import RULE_FIELDS, SCHEDULE_FIELDS

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
    restores: bool = False  # requests a stored version again
    schedule: Spec | Rejected | None = None  # precomputed schedule of a request
    # Whether a cancel may also cancel a delayed message, which belongs to no tenant; None: for the default tenant.
    cancels_delayed: bool | None = None

    @property
    def duplicate_key(self) -> tuple[str, ...] | None:
        """The identity of a trigger, the same in a redelivery: its issued_at, or else its message_id."""
        if isinstance(self.command, ScheduleTrigger) and self.command.issued_at is not None:
            return "issued_at", rfc3339(self.command.issued_at)
        return None if self.message_id is None else (self.message_id,)


@dataclass(slots=True)
class Definition:
    """Definition of a job; its fields and the spec's fields are columns."""

    # Converted from the request and its message by `define`.
    payload: str  # JSON text, unchanged
    max_lateness: timedelta | None
    run: RunPolicy | None
    target: str | None  # JSON text
    correlation_id: str | None
    traceparent: str | None
    tracestate: str | None
    # Copied from the request's fields with these names.
    job_type: str
    on_missed: OnMissed
    name: str | None
    description: str | None
    priority: Priority | None  # as given: without one, events have no priority property
    route: str | None
    spec: Spec


_CONVERTED = {
    "payload", "max_lateness", "run", "target", "correlation_id", "traceparent", "tracestate", "spec",
}
COPIED_FIELDS = tuple(field.name for field in fields(Definition) if field.name not in _CONVERTED)
_copied_values = attrgetter(*COPIED_FIELDS)
# Values of a request's __dict__, which has all COMMON_FIELDS: faster than its attributes.
_converted_values = itemgetter("max_lateness", "run", "target")
_MORE_THAN_RUN_AT = frozenset({"manual", *SCHEDULE_FIELDS} - {"run_at"})
_schedule_values = attrgetter("manual", "calendar", "window", "jitter", *RULE_FIELDS)
_create: Callable[..., Definition] = Definition  # by position, with a number of fields unknown to the type checker


def define(incoming: Incoming, now: datetime) -> Definition:
    """Return the definition from a request stored at `now`. Raises Rejected."""
    request = incoming.command
    assert isinstance(request, ScheduleRequest)  # noqa: S101 - no other command defines a job
    lateness, run, target = _converted_values(request.__dict__)
    return _create(
        incoming.payload,
        None if lateness is None else timedelta(seconds=lateness),
        run if target is None else run or RunPolicy(),
        None if target is None else target.model_dump_json(exclude_unset=True),
        incoming.correlation_id, incoming.traceparent, incoming.tracestate,
        *_copied_values(request),
        _resolve_request(request, now) if incoming.schedule is None else _precomputed(incoming.schedule),
    )


def can_precompute_schedule(incoming: Incoming) -> bool:
    """Return whether a request has a rule with a start, which does not depend on the time of storing."""
    request = incoming.command
    # Not isinstance, which is slow for another model; commands have no subclasses.
    if type(request) is not ScheduleRequest or request.rrule is None:
        return False
    return request.run_at not in (None, RUN_NOW) or "DTSTART" in request.rrule.upper()


def precompute_schedule(incoming: Incoming) -> None:
    """Resolve the schedule before rows are locked, because it may take milliseconds."""
    assert isinstance(incoming.command, ScheduleRequest)  # noqa: S101 - no other command has a schedule
    try:
        incoming.schedule = _resolve_request(incoming.command, _ANY_TIME)
    except Rejected as rejected:
        incoming.schedule = rejected.without_traceback()


def _precomputed(schedule: Spec | Rejected) -> Spec:
    if isinstance(schedule, Rejected):
        raise schedule
    return schedule


def _resolve_request(request: ScheduleRequest, now: datetime) -> Spec:
    if request.run_at is not None and request.__pydantic_fields_set__.isdisjoint(_MORE_THAN_RUN_AT):
        spec = plain_one_shot(request.run_at)  # as in most requests
        if spec is not None:
            return spec
    manual, calendar, window, jitter, run_at, rrule, cron, every, timezone = _schedule_values(request)
    if manual:
        return resolve_fields(request.__dict__, now)
    adjusted = calendar is not None or window is not None or jitter is not None
    spec = resolve(
        run_at=run_at, rrule=rrule, cron=cron, every=every,
        timezone=timezone if "timezone" in request.__pydantic_fields_set__ else None, stored_at=now,
        keep_wall=adjusted,
    )
    return replace(spec, **spec_fields(_adjustments(request))) if adjusted else spec


def _adjustments(request: ScheduleRequest) -> dict[str, Any]:
    window = request.window
    return {
        "calendar": request.calendar, "on_closed": request.on_closed, "jitter": request.jitter,
        "window": None if window is None else window.model_dump(by_alias=True),
    }


def keep_start(definition: Definition, stored: Spec, *, planned: bool = False) -> Definition:
    """Return the definition with the stored start if its request has none, or if `planned`.

    The schedules must be the same.
    """
    spec = definition.spec
    if spec.start_source not in (StartSource.STORED, StartSource.NOW) and not planned:
        return definition
    return replace(definition, spec=replace(
        spec, dtstart=stored.dtstart, starts_at=stored.starts_at, ends_at=stored.ends_at,
    ))


# The caller, the trace and the time of storing do not matter when two requests are compared.
_NOT_COMPARED = {"correlation_id", "traceparent", "tracestate", "spec"}
_WITHOUT_INSTANT = (StartSource.NOW, StartSource.MANUAL)  # the request has no instant to compare
_DERIVED = {"dtstart", "starts_at", "ends_at", "start_source"}
_compared_values = attrgetter(
    *(field.name for field in fields(Definition) if field.name not in _NOT_COMPARED),
    *(f"spec.{field.name}" for field in fields(Spec) if field.name not in _DERIVED),
)


def content(definition: Definition, *, start_given: bool) -> tuple[Any, ...]:
    """Return the content of a request as strings, which are always comparable.

    `start_given` is whether the new request has a start: without one, the start depends on the time of storing.
    """
    spec = definition.spec
    start: object = spec.starts_at.timestamp() if start_given else None
    if spec.start_source in _WITHOUT_INSTANT:
        start = spec.start_source
    return tuple(map(str, (*_compared_values(definition), start)))
