"""The sidecar without a broker, a database or waiting: the real rules, on a clock that the test moves."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from scheduler.client.handlers import Handlers, handlers
from scheduler.commands.answers import answer
from scheduler.commands.judging import Verdict, judge
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.emission import decide, due_body, missed_body, settle
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.messages import ScheduleAccepted, ScheduleDue, ScheduleMissed, ScheduleRejected
from scheduler.domain.parsing import claimed_id, parse_command
from scheduler.domain.times import rfc3339

MAX_PAYLOAD_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class Event:
    """A message as a host would receive it."""

    routing_key: str
    body: bytes
    correlation_id: str | None = None


class Sidecar:
    """Takes commands, and emits what is due as its clock is moved; nothing happens between two calls."""

    def __init__(self, now: datetime | None = None, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        """Start the clock at `now`, which is the real time by default."""
        self.now = (now or datetime.now(UTC)).astimezone(UTC)
        self._max_payload_bytes = max_payload_bytes
        self._jobs: dict[str, Job] = {}
        self._events: list[Event] = []
        self._down = False

    def publish(
        self, routing_key: str, body: bytes | Mapping[str, Any], *, correlation_id: str | None = None,
        headers: Mapping[str, str] | None = None, message_type: str | None = None,
    ) -> ScheduleAccepted | ScheduleRejected:
        """Take a raw message as it would be published to schedule.commands, and return the answer."""
        raw = body if isinstance(body, bytes) else json.dumps(dict(body), default=_plain).encode()
        verdict: Verdict
        try:
            incoming = parse_command(
                routing_key, raw, max_payload_bytes=self._max_payload_bytes, message_type=message_type
            )
            incoming.correlation_id = correlation_id
            if headers:
                incoming.traceparent, incoming.tracestate = headers.get("traceparent"), headers.get("tracestate")
            [verdict], self._jobs = judge(self._jobs, [incoming], self.now)
        except Rejected as rejected:
            verdict = rejected
        answered = answer(verdict, claimed_id(raw))
        assert isinstance(answered, ScheduleAccepted | ScheduleRejected)  # noqa: S101 - of a command about a job
        if isinstance(answered, ScheduleRejected):
            self._events.append(Event("rejected", answered.model_dump_json().encode(), correlation_id))
        self._emit_until(self.now)
        return answered

    def request(self, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a ScheduleRequest; the fields are those of the contract."""
        return self.publish("request", fields)

    def cancel(self, id: UUID | str, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a ScheduleCancel."""
        return self.publish("cancel", {"id": id, **fields})

    def pause(self, id: UUID | str, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a SchedulePause."""
        return self.publish("pause", {"id": id, **fields})

    def resume(self, id: UUID | str, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a ScheduleResume."""
        return self.publish("resume", {"id": id, **fields})

    def trigger(self, id: UUID | str, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a ScheduleTrigger."""
        return self.publish("trigger", {"id": id, **fields})

    def advance(self, span: timedelta | None = None, **parts: float) -> None:
        """Move the clock on, as in `advance(days=3)`; everything due on the way is emitted on time."""
        self.advance_to(self.now + (span or timedelta(0)) + timedelta(**parts))

    def advance_to(self, moment: datetime) -> None:
        """Move the clock on to a moment."""
        if moment < self.now:
            raise ValueError(f"the clock stands at {self.now} already; it does not go back")
        self._emit_until(moment.astimezone(UTC))
        self.now = moment.astimezone(UTC)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Meanwhile nothing is emitted; afterwards each job's `on_missed` decides about what passed."""
        self._down = True
        try:
            yield
        finally:
            self._down = False
        self._emit_until(self.now)

    def due(self) -> list[ScheduleDue]:
        """Take the ScheduleDue events that were emitted since the last call."""
        return [ScheduleDue.model_validate_json(each.body) for each in self.take("due")]

    def missed(self) -> list[ScheduleMissed]:
        """Take the ScheduleMissed events that were emitted since the last call."""
        return [ScheduleMissed.model_validate_json(each.body) for each in self.take("missed")]

    def rejected(self) -> list[ScheduleRejected]:
        """Take the ScheduleRejected events that were emitted since the last call."""
        return [ScheduleRejected.model_validate_json(each.body) for each in self.take("rejected")]

    def take(self, routing_key: str) -> list[Event]:
        """Take the raw events of one kind, oldest first."""
        taken = [each for each in self._events if each.routing_key == routing_key]
        self._events = [each for each in self._events if each.routing_key != routing_key]
        return taken

    def deliver(self, to: Handlers = handlers) -> int:
        """Hand the due events to the host's handlers and return how many; what a handler raises is raised."""
        events = self.take("due")
        for event in events:
            to.dispatch(event.body)
        return len(events)

    def job(self, id: UUID | str) -> Job | None:
        """Return where a job stands, or None if no command ever named it."""
        return self._jobs.get(str(UUID(str(id))))

    def _emit_until(self, moment: datetime) -> None:
        while not self._down:
            due = [
                (job.wake_at, job.id, job) for job in self._jobs.values()
                if job.status is JobStatus.PENDING and job.wake_at is not None and job.wake_at <= moment
            ]
            if not due:
                return
            wake_at, _, job = min(due)
            self.now = max(self.now, wake_at)
            self._emit(job)

    def _emit(self, job: Job) -> None:
        emission = decide(job, self.now)
        assert job.definition is not None  # noqa: S101 - only a defined job is pending
        correlation_id = job.definition.correlation_id
        if emission.due_at is not None:
            self._events.append(Event("due", due_body(emission, rfc3339(self.now)), correlation_id))
        if emission.missed is not None:
            self._events.append(Event("missed", missed_body(emission), correlation_id))
        self._jobs[job.id] = settle(emission)


def _plain(value: Any) -> Any:
    """Write Python values as the contract wants them."""
    match value:
        case UUID():
            return str(value)
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case BaseModel():
            return value.model_dump(mode="json")
        case _:
            raise TypeError(f"{type(value).__name__} is not JSON")
