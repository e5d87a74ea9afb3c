"""What a request defines: its schedule resolved, beside what is handed back to the host."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.domain.job import Definition
from scheduler.domain.messages import Command, ScheduleRequest
from scheduler.domain.recurrence import resolve


@dataclass(slots=True)  # not frozen, for speed: see domain/job.py
class Incoming:
    """A command with what came beside its body."""

    command: Command
    job_id: str  # its id as Postgres writes it
    payload: str = "{}"
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None


def define(incoming: Incoming, now: datetime) -> Definition | None:
    """Return the job that a request stored at `now` asks for, None for another command, or raise Rejected."""
    request = incoming.command
    if not isinstance(request, ScheduleRequest):
        return None
    spec = resolve(
        run_at=request.run_at, rrule=request.rrule, cron=request.cron, every=request.every,
        timezone=request.timezone if "timezone" in request.model_fields_set else None, stored_at=now,
    )
    lateness = request.max_lateness
    return Definition(
        request.job_type, incoming.payload, incoming.correlation_id, incoming.traceparent, incoming.tracestate,
        spec, request.on_missed, None if lateness is None else timedelta(seconds=lateness),
    )
