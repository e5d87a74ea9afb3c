"""The sidecar without a broker or a database: the production rules, with a clock that the test controls."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from scheduler.client.database import execute
from scheduler.client.handlers import Handlers, UnknownJobType, UnreadableEvent, handlers
from scheduler.client.results import tracked
from scheduler.commands.command_replies import rejection, reply_to
from scheduler.commands.decide_commands import MessageOutcome, decide_jobs
from scheduler.domain.calendars import (
    CalendarKey,
    EffectiveCalendar,
    StoredCalendar,
    business_calendar,
    store_calendar,
)
from scheduler.domain.errors import Rejected
from scheduler.domain.instants import rfc3339
from scheduler.domain.jobs.adjusted import plan_again, planner_of, report_skips
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.emission import Missed, decide, due_body, missed_body, reports, settle
from scheduler.domain.jobs.job import CommandOutcome, Job, JobStatus
from scheduler.domain.message_parser import id_in_body, parse_command, parse_result, parse_worker
from scheduler.domain.messages import (
    AMQP_PRIORITIES,
    CalendarAccepted,
    CalendarRejected,
    Overlap,
    ResultStatus,
    ScheduleAccepted,
    ScheduleCalendar,
    ScheduleDue,
    ScheduleFinished,
    ScheduleMissed,
    ScheduleRecorded,
    ScheduleRejected,
    ScheduleResult,
    ScheduleRetry,
    ScheduleTrigger,
    ScheduleWorker,
)
from scheduler.domain.names import due_address
from scheduler.domain.recurrence import Spec
from scheduler.domain.runs.run import Run
from scheduler.domain.tenants import EVERY_TENANT
from scheduler.domain.trace_context import trace_context
from scheduler.testing.runs import HostEvent, SidecarRuns

MAX_PAYLOAD_BYTES = 262_144
_RELAYED = 1000  # commands at a time
_SKIPS = 2  # order of simultaneous events
Answer = ScheduleAccepted | ScheduleRejected
CalendarAnswer = CalendarAccepted | CalendarRejected


class Sidecar:
    """Applies commands, and emits due events when the test moves its clock."""

    def __init__(self, now: datetime | None = None, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        """Start the clock at `now`, which is the real time by default."""
        self.now = (now or datetime.now(UTC)).astimezone(UTC)
        self._max_payload_bytes = max_payload_bytes
        self._jobs: dict[str, Job] = {}
        self._calendars: dict[CalendarKey, StoredCalendar] = {}
        self._trigger_messages: set[tuple[str, tuple[str, ...]]] = set()  # job and duplicate_key
        self._runs = SidecarRuns()
        self._events: list[HostEvent] = []
        self._down = False

    def publish(
        self, routing_key: str, body: bytes | Mapping[str, Any], *, correlation_id: str | None = None,
        headers: Mapping[str, str] | None = None, message_type: str | None = None, message_id: str | None = None,
    ) -> Answer | CalendarAnswer | ScheduleRecorded:
        """Apply a raw message for schedule.commands, and return the reply."""
        raw = body if isinstance(body, bytes) else json.dumps(dict(body), default=_plain).encode()
        outcome: MessageOutcome
        try:
            if routing_key == ScheduleWorker.kind:
                parse_worker(raw, message_type=message_type)  # the sidecar for tests has no list of workers
                outcome = "recorded"
            elif routing_key == ScheduleResult.kind:
                outcome = self._runs.report(parse_result(routing_key, raw, message_type=message_type), self.now)
            else:
                incoming = parse_command(
                    routing_key, raw, max_payload_bytes=self._max_payload_bytes, message_type=message_type
                )
                incoming.correlation_id = correlation_id
                given_headers = headers or {}
                incoming.traceparent, incoming.tracestate = trace_context(
                    given_headers.get("traceparent"), given_headers.get("tracestate")
                )
                if isinstance(incoming.command, ScheduleTrigger) and incoming.command.issued_at is None:
                    incoming.message_id = message_id
                outcome = self._execute(incoming)
        except Rejected as rejected:
            outcome = rejected
        if isinstance(outcome, Rejected):
            reply = rejection(outcome, routing_key, raw)
        else:
            reply = reply_to(outcome, id_in_body(raw))
        assert isinstance(reply, Answer | CalendarAnswer | ScheduleRecorded)  # noqa: S101 - there are no others
        if isinstance(reply, ScheduleRejected | CalendarRejected):
            self._events.append(HostEvent("rejected", reply.model_dump_json().encode(), correlation_id))
        self._emit_until(self.now)
        return reply

    def _execute(self, incoming: Incoming) -> MessageOutcome:
        if isinstance(incoming.command, ScheduleRetry):
            return self._runs.retry(incoming, self.now)
        if isinstance(incoming.command, ScheduleCalendar):
            return self._store_calendar(incoming.command, incoming.tenant)
        key = incoming.duplicate_key
        named = None if key is None else (incoming.about, key)
        incoming.repeated = named in self._trigger_messages
        [outcome], self._jobs = decide_jobs(self._jobs, [incoming], self.now, self._find_calendar)
        if isinstance(outcome, CommandOutcome):
            if named is not None and outcome.status != "superseded":
                self._trigger_messages.add(named)
            if outcome.stops_runs and self._runs.cancel(outcome.job.id, self.now):
                outcome.status = "cancelled"
        return outcome

    def _store_calendar(self, command: ScheduleCalendar, owner: str) -> MessageOutcome:
        key = CalendarKey(command.name, owner)
        outcome = store_calendar(self._calendars.get(key), command, owner, self.now)
        users = [job for job in self._jobs.values()
                 if job.active and job.definition is not None and job.definition.spec.calendar == command.name]
        former = {job.tenant: self._find_calendar(job.tenant, command.name) for job in users}
        self._calendars[key] = outcome.calendar
        for job in users:
            self._jobs[job.id] = self._replan(job, job.requested.spec, former[job.tenant])
        return outcome

    def _replan(self, job: Job, spec: Spec, former: EffectiveCalendar | None) -> Job:
        effective = self._find_calendar(job.tenant, spec.calendar or "")
        if effective == former:
            return job
        before, after = (planner_of(job, spec, calendar) for calendar in (former, effective))
        return job.with_plan(plan_again(job, before, after, effective, self.now))

    def _find_calendar(self, tenant: str, name: str) -> EffectiveCalendar | None:
        for owner in (tenant, EVERY_TENANT):
            stored = self._calendars.get(CalendarKey(name, owner))
            if stored is not None and stored.content is not None:
                calendar = business_calendar(stored.content)
                return EffectiveCalendar(calendar, stored.version, stored.version)
        return None

    def _command(self, kind: str, fields: Mapping[str, Any]) -> Answer:
        reply = self.publish(kind, fields)
        assert isinstance(reply, Answer)  # noqa: S101 - other replies are to results and calendars
        return reply

    def request(self, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a ScheduleRequest; the fields are those of the contract."""
        return self._command("request", fields)

    def cancel(self, id: UUID | str, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a ScheduleCancel."""
        return self._command("cancel", {"id": id, **fields})

    def pause(self, id: UUID | str, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a SchedulePause."""
        return self._command("pause", {"id": id, **fields})

    def resume(self, id: UUID | str, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a ScheduleResume."""
        return self._command("resume", {"id": id, **fields})

    def trigger(self, id: UUID | str, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a ScheduleTrigger."""
        return self._command("trigger", {"id": id, **fields})

    def retry(self, event_id: UUID | str, **fields: Any) -> ScheduleAccepted | ScheduleRejected:
        """Send a ScheduleRetry."""
        return self._command("retry", {"event_id": event_id, **fields})

    def result(
        self, event_id: UUID | str, attempt: int, status: str, **fields: Any
    ) -> ScheduleRecorded | ScheduleRejected:
        """Send a ScheduleResult, as a worker would."""
        reply = self.publish("result", {"event_id": event_id, "attempt": attempt, "status": status, **fields})
        assert isinstance(reply, ScheduleRecorded | ScheduleRejected)  # noqa: S101 - others are to commands
        return reply

    def calendar(self, name: str, **fields: Any) -> CalendarAnswer:
        """Send a ScheduleCalendar."""
        reply = self.publish("calendar", {"name": name, **fields})
        assert isinstance(reply, CalendarAnswer)  # noqa: S101 - other replies are to other commands
        return reply

    def advance(self, span: timedelta | None = None, **parts: float) -> None:
        """Advance the clock, as in `advance(days=3)`; events due in that time are emitted on time."""
        self.advance_to(self.now + (span or timedelta(0)) + timedelta(**parts))

    def advance_to(self, moment: datetime) -> None:
        """Advance the clock to a moment."""
        if moment < self.now:
            raise ValueError(f"the clock is already at {self.now} and cannot go back")
        self._emit_until(moment.astimezone(UTC))
        self.now = moment.astimezone(UTC)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Emit nothing inside the block; after it, each job's `on_missed` applies to the missed occurrences."""
        self._down = True
        try:
            yield
        finally:
            self._down = False
        self._emit_until(self.now)

    def due(self) -> list[ScheduleDue]:
        """Take the ScheduleDue events that were emitted since the last call, for any route."""
        return [ScheduleDue.model_validate_json(event.body) for event in self.take("due", "due.")]

    def missed(self) -> list[ScheduleMissed]:
        """Take the ScheduleMissed events that were emitted since the last call."""
        return [ScheduleMissed.model_validate_json(event.body) for event in self.take("missed")]

    def finished(self) -> list[ScheduleFinished]:
        """Take the ScheduleFinished events that were emitted since the last call."""
        return [ScheduleFinished.model_validate_json(event.body) for event in self.take("finished")]

    def rejected(self) -> list[ScheduleRejected]:
        """Take the ScheduleRejected events that were emitted since the last call."""
        return [ScheduleRejected.model_validate_json(event.body) for event in self.take("rejected")]

    def take(self, routing_key: str, beginning: str | None = None) -> list[HostEvent]:
        """Take the raw events of one kind, oldest first; `dead` returns the events of dead runs.

        `webhook` and `command.NAME` are events for workers, `due.ROUTE` events with a route; `beginning` adds
        events whose routing key starts with it.
        """
        taken: list[HostEvent] = []
        left: list[HostEvent] = []
        for event in self._events:
            wanted = event.routing_key == routing_key or (
                beginning is not None and event.routing_key.startswith(beginning)
            )
            (taken if wanted else left).append(event)
        self._events = left
        return taken

    def relay(self, database: Any) -> int:
        """Apply the commands in the host's outbox and delete them, as a Relay does; return their number.

        `database` is that of an Outbox: a connection, cursor or session in the test's own transaction.
        """
        count = 0
        while rows := execute(database, "claim_commands", (_RELAYED,)):
            for _, kind, body, _, _, correlation_id, headers, _ in rows:
                stored_headers = json.loads(headers or "{}")
                self.publish(kind, body.encode(), correlation_id=correlation_id, headers=stored_headers)
            execute(database, "delete_confirmed_commands", ([row[0] for row in rows],))
            count += len(rows)
        return count

    def deliver(self, to: Handlers = handlers) -> int:
        """Call the host's handlers with the due events; return their number. A handler's error is raised.

        For tracked jobs the result or error is reported instead, as a Runner does. Expired events are dropped, as
        the broker does.
        """
        count = 0
        for event in self.take("due", "due."):
            run = ScheduleDue.model_validate_json(event.body).run
            if run is None:
                to.dispatch(event.body)
            elif run.deadline > self.now:
                self._attempt(event.body, to)
            else:
                continue
            count += 1
        return count

    def _attempt(self, body: bytes, to: Handlers) -> None:
        attempt = tracked(body, "test")
        assert attempt is not None  # noqa: S101 - the caller checked it
        self.publish("result", attempt.encode(ResultStatus.RUNNING))
        try:
            result = attempt.succeeded(to.dispatch(body))
        except (UnknownJobType, UnreadableEvent):
            raise  # probably a mistake in the test
        except Exception as error:  # noqa: BLE001 - every error is reported
            result = attempt.failed(error)
        self.publish("result", result)

    def job(self, id: UUID | str) -> Job | None:
        """Return a job, or None if it is unknown."""
        return self._jobs.get(str(UUID(str(id))))

    def run(self, event_id: UUID | str) -> Run | None:
        """Return a run with its attempts, or None if it is unknown."""
        return self._runs.get(str(UUID(str(event_id))))

    def _emit_until(self, moment: datetime) -> None:
        while not self._down:
            due: list[tuple[datetime, int, str, Job | Run]] = [
                (wake_at, 0, run.event_id, run) for wake_at, run in self._runs.next_wakeups() if wake_at <= moment
            ]
            due += [
                (job.skip_at, 2, job.id, job) for job in self._jobs.values()
                if job.status is JobStatus.PENDING and job.skip_at is not None and job.skip_at <= moment
            ]
            due += [
                (job.wake_at, 1, job.id, job) for job in self._jobs.values()
                if job.status is JobStatus.PENDING and job.wake_at is not None and job.wake_at <= moment
                and not self._waits(job)
            ]
            if not due:
                return
            wake_at, kind, _, first = min(due, key=lambda item: item[:3])
            self.now = max(self.now, wake_at)
            if kind == _SKIPS and isinstance(first, Job):
                self._report_skips(first)
            elif isinstance(first, Run):
                self._events += self._runs.wake(first, self.now)
            else:
                self._emit(first)

    def _report_skips(self, job: Job) -> None:
        definition = job.definition
        assert definition is not None  # noqa: S101 - only a defined job has occurrences
        spec = definition.spec
        effective = self._find_calendar(job.tenant, spec.calendar or "")
        report = report_skips(job, planner_of(job, spec, effective), self.now)
        if report.nominals:
            missed = Missed(report.nominals, len(report.nominals), "calendar")
            self._events.append(HostEvent("missed", missed_body(job, missed), definition.correlation_id))
        finished = report.skip_at is None and job.next_run_at is None and not job.triggers
        self._jobs[job.id] = replace(
            job, reported_until=report.reported_until, skip_at=report.skip_at,
            status=JobStatus.DONE if finished else job.status,
        )

    def _waits(self, job: Job) -> bool:
        """Return whether a held job still has as many open runs as it may have."""
        return job.held_by is not None and self._blocking_run(job) is not None

    def _blocking_run(self, job: Job) -> str | None:
        policy = job.requested.run
        if policy is None or policy.overlap is Overlap.ALLOW:
            return None
        return self._runs.open_of(job.id, policy.most_open)

    def _emit(self, job: Job) -> None:
        if (run := self._blocking_run(job)) != job.held_by:
            job = replace(job, held_by=run)
        emission = decide(job, self.now, find=self._find_calendar)
        definition, correlation_id = emission.definition, emission.definition.correlation_id
        if emission.tracked:
            self._events.append(self._runs.begin(emission, self.now))
        elif emission.due_at is not None:
            _, routing_key = due_address(definition.route, None)
            body, priority = due_body(emission, rfc3339(self.now)), AMQP_PRIORITIES[definition.priority]
            self._events.append(HostEvent(routing_key, body, correlation_id, priority))
        for missed in reports(emission):
            self._events.append(HostEvent("missed", missed_body(job, missed), correlation_id))
        self._jobs[job.id] = settle(emission)


def _plain(value: Any) -> Any:
    """Encode Python values for JSON."""
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
