"""What a host asked for: a request's fields, its schedule resolved, beside what came with the message."""

from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from scheduler.domain.caller import Caller
from scheduler.domain.errors import Rejected
from scheduler.domain.messages import DEFAULT_TENANT, Command, OnMissed, Priority, RunPolicy, ScheduleRequest
from scheduler.domain.recurrence import Spec, StartSource, resolve

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


# What this module makes is never changed afterwards. It is not `frozen`: to make that takes several times as long,
# and each command makes some of it.
@dataclass(slots=True)
class Incoming:
    """A command with what came beside its body."""

    command: Command
    about: str  # the id of its job or its run, as Postgres writes it
    payload: str = "{}"
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    tenant: str = DEFAULT_TENANT
    caller: Caller | None = None  # None: over AMQP, by a user whom the broker has not verified
    message_id: str | None = None  # of a trigger without issued_at, by which a redelivery is recognised
    repeated: bool = False  # a message with that id was stored before
    schedule: Spec | Rejected | None = None  # of a request, if it was worked out before the request is stored


@dataclass(slots=True)
class Definition:
    """What defines a job; each field is a column of the table, and so is each of the spec's."""

    job_type: str
    payload: str  # JSON text, exactly as it came
    on_missed: OnMissed
    max_lateness: timedelta | None
    run: RunPolicy | None
    name: str | None
    priority: Priority | None  # as it was given: an event of a job without one carries none
    route: str | None
    target: str | None  # JSON text
    correlation_id: str | None
    traceparent: str | None
    tracestate: str | None
    spec: Spec


def define(incoming: Incoming, now: datetime) -> Definition:
    """Return the job that a request stored at `now` asks for, or raise Rejected."""
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
    """Say whether a request has a rule and its start: when it is stored makes no difference to its schedule."""
    request = incoming.command
    if not isinstance(request, ScheduleRequest) or request.rrule is None:
        return False
    return request.run_at is not None or "DTSTART" in request.rrule.upper()


def precompute_schedule(incoming: Incoming) -> None:
    """Work out such a schedule before any row is locked, for that may take milliseconds."""
    assert isinstance(incoming.command, ScheduleRequest)  # noqa: S101 - nothing else can be worked out
    try:
        incoming.schedule = _resolved(incoming.command, _ANY_TIME)
    except Rejected as rejected:
        incoming.schedule = rejected.without_traceback()


def _schedule(incoming: Incoming, request: ScheduleRequest, now: datetime) -> Spec:
    if isinstance(incoming.schedule, Rejected):
        raise incoming.schedule
    return incoming.schedule or _resolved(request, now)


def _resolved(request: ScheduleRequest, now: datetime) -> Spec:
    return resolve(
        run_at=request.run_at, rrule=request.rrule, cron=request.cron, every=request.every,
        timezone=request.timezone if "timezone" in request.model_fields_set else None, stored_at=now,
    )


def keep_start(definition: Definition, stored: Spec) -> Definition:
    """Return the definition with the stored start if its request gave none; both schedules are the same."""
    spec = definition.spec
    if spec.start_source != StartSource.STORED:
        return definition
    return replace(definition, spec=replace(
        spec, dtstart=stored.dtstart, starts_at=stored.starts_at, ends_at=stored.ends_at,
    ))


# Who sent a request and in which trace makes no difference to what it asks for, nor does when it was stored.
_BESIDE = {"correlation_id", "traceparent", "tracestate", "spec"}
_RECKONED = {"dtstart", "starts_at", "ends_at", "start_source"}
_asked = attrgetter(
    *(each.name for each in fields(Definition) if each.name not in _BESIDE),
    *(f"spec.{each.name}" for each in fields(Spec) if each.name not in _RECKONED),
)


def content(definition: Definition, *, start_given: bool) -> tuple[Any, ...]:
    """Return what a request asked for, as texts that can be compared whatever they are."""
    start = definition.spec.starts_at.timestamp() if start_given else None
    return tuple(map(str, (*_asked(definition), start)))
