"""The source of due jobs: each emits its occurrence, or its missed ones, and moves on to the next."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from scheduler.domain.instants import parse_instant
from scheduler.domain.jobs.emission import (
    Emission,
    Missed,
    decide,
    due_body,
    missed_body,
    missed_id,
    occurrence,
    reports,
    settle,
)
from scheduler.domain.jobs.job import Job
from scheduler.domain.jobs.replan import Cause, replanned_body, replanned_id
from scheduler.domain.messages import AMQP_PRIORITIES, Overlap
from scheduler.domain.names import EVENTS_EXCHANGE, due_address
from scheduler.domain.runs.run import Origin, Run, RunStatus
from scheduler.domain.runs.transitions import deliver_run
from scheduler.domain.targets.target import work_key
from scheduler.emitting.planned_claim import PlannedClaim
from scheduler.emitting.run_messages import count_unoffered, not_delivered, run_message, trace_headers
from scheduler.emitting.source import BatchTimes, EmissionResult, EmissionTime, Source
from scheduler.ops import metrics, traces
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.ops.trace_types import Traced
from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession
from scheduler.postgres.effective_calendars import JobCalendars
from scheduler.postgres.jobs import due
from scheduler.postgres.jobs.due import AdjustedOccurrence, FailedEmission, JobSettlement, SkippedOccurrences
from scheduler.postgres.priority_classes import CLASSES
from scheduler.postgres.runs import due as runs_due
from scheduler.rabbit.frames import DueMessage, Publishable, json_message
from scheduler.rabbit.publisher import Receipt

log = get_logger(__name__)

MAX_LOGGED_IDS = 10
MIN_RETURNED_SECONDS = 15.0
MISSED_RETRIES = 3  # of a refused ScheduleMissed without an event
_warnings = {receipt: ThrottledWarning(log, "events not delivered") for receipt in Receipt}
_given_up = ThrottledWarning(log, "missed occurrences not reported")


class DueJobs(Source[Job, Emission]):
    """The source of ScheduleDue and ScheduleMissed."""

    kind = due.KIND
    tables: Sequence[str] = ("jobs",)
    classes = CLASSES
    notice_seconds: float | None = None
    idle_seconds = 0.0

    def __init__(self, *, keep_all: bool = False, replica: str | None = None) -> None:
        """Record every occurrence in the history, or only occurrences of tracked jobs."""
        self._replica = replica
        self._keep_all = keep_all
        self._planned_claim = PlannedClaim()
        self._calendars = JobCalendars()
        if keep_all:
            self.tables = ("jobs", "run_history")

    def claim(self, session: ClaimSession, limit: int, since: Sequence[datetime]) -> Claim[Job]:
        """Lock the oldest due jobs, and find open runs of jobs that may not start another."""
        claim = self._planned_claim.claim(session, limit, since)
        limits = {
            job.id: policy.most_open for job in claim.things
            if (policy := job.requested.run) is not None and policy.overlap is not Overlap.ALLOW
        }
        adjusted = [job for job in claim.things if job.definition is not None and job.definition.spec.adjusted]
        if adjusted:
            self._calendars.load(session.query, adjusted)
        if limits:
            opened = runs_due.open_runs_of_jobs(session, limits)
            for job in claim.things:
                if job.id in limits:
                    job.held_by = opened.get(job.id)
        return claim

    def decide(self, job: Job, now: datetime) -> Emission:
        """Decide the emission of a job and its next occurrence."""
        local = None if job.zone_version is None else self._planned_claim.clock(job)
        return decide(job, now, local, self._calendars.find, self._calendars.find_former)

    def name(self, job: Job) -> str:
        """Return the job's id."""
        return job.id

    def messages(self, emission: Emission, stamp: EmissionTime) -> list[Publishable]:
        """Return the ScheduleDue, or the ScheduleMissed if no occurrence is emitted."""
        definition = emission.definition
        messages: list[Publishable] = []
        if emission.event_id is not None and definition.run is not None:
            messages.append(run_message(_first_run(emission, stamp.at, self._replica)))
        elif emission.event_id is not None:
            headers = trace_headers(definition.traceparent, definition.tracestate)
            body = due_body(emission, stamp.text)
            messages.append(DueMessage(
                body, emission.event_id, stamp.seconds, definition.correlation_id, headers, None,
                AMQP_PRIORITIES[definition.priority], *_address(emission),
            ))
        elif _is_replanned(emission):
            messages.append(_replanned_message(emission, stamp))
        else:
            messages += [missed_message(emission.job, missed, stamp) for missed in reports(emission)]
        return messages

    def follow_ups(self, results: Sequence[EmissionResult[Emission]],
                   stamp: EmissionTime) -> list[tuple[int, Publishable]]:
        """Return the ScheduleMissed of each confirmed event.

        It follows the confirm, because each retry of a refused event folds more occurrences into it.
        """
        return [
            (index, missed_message(emission.job, missed, stamp))
            for index, (emission, _, refusal) in enumerate(results)
            if emission.event_id is not None and refusal is None for missed in reports(emission)
        ]

    def record(self, session: ClaimSession, emissions: Sequence[Emission], emitted_at: datetime) -> None:
        """Record the new runs before publishing: a worker may finish before the confirm arrives."""
        tracked = [emission for emission in emissions if emission.tracked]
        if not tracked:
            return
        previous_runs = runs_due.record(session, [
            _first_run(emission, emitted_at, self._replica) for emission in tracked])
        merged = []
        for emission in tracked if previous_runs else ():
            emission.previous_run = before = previous_runs.get(emission.event_id or "")
            if before is not None and before.status is RunStatus.EXPECTED:
                merged.append(deliver_run(before, before.event_id, occurrence(emission), emitted_at,
                                          self._replica))
        if merged:
            runs_due.merge(session, merged)

    def settle(
        self, session: ClaimSession, results: Sequence[EmissionResult[Emission]], unreadable: Sequence[Job],
        times: BatchTimes
    ) -> datetime | None:
        """Settle each job by its receipts."""
        settlement = JobSettlement(times.emitted_at, times.confirmed_at)
        for emission, receipts, refusal in results:
            if refusal is None or _gives_up(emission, refusal):
                _add(settlement, emission)
            elif _has_no_queue(emission, refusal, times):
                _add(settlement, emission)
                settlement.unoffered.append(emission.event_id or "")
            else:
                if emission.event_id is not None and emission.tracked and receipts[0] is not Receipt.CONFIRMED:
                    _unrecord(settlement, emission.event_id, emission.previous_run)
                # An unconfirmed event may have been delivered or not: it stays due and is resent at once.
                seconds = None if refusal is Receipt.UNKNOWN else _retry_seconds(emission.job)
                problem, _ = not_delivered(refusal, *_address(emission))
                settlement.failed.append(FailedEmission(emission.job.id, seconds, emission.due_at, problem))
        settlement.failed += [
            FailedEmission(job.id, _retry_seconds(job), job.next_run_at, "the scheduler cannot read its row")
            for job in unreadable
        ]
        if self._keep_all:
            emitted = [_emitted(emission) for emission, _, refusal in results
                       if emission.due_at is not None and not emission.tracked and refusal is None]
            if emitted:
                runs_due.record_emitted(session, emitted, times.emitted_at, times.confirmed_at, self._replica)
        due.settle(session, settlement)
        metrics.retries.inc(sum(failed.seconds is not None for failed in settlement.failed))
        return _due_again(settlement, times)

    def report(self, results: Sequence[EmissionResult[Emission]], times: BatchTimes) -> None:
        """Count confirmed events, and log the others."""
        failed: dict[tuple[Receipt, str, str], list[str]] = {}
        emitted = 0
        given_up: list[str] = []
        classes = dict.fromkeys(metrics.CLASSES, 0)
        for emission, receipts, refusal in results:
            if _has_given_up(emission, receipts, refusal):
                given_up.append(emission.job.id)
            elif refusal is not None:
                failed.setdefault((refusal, *_address(emission)), []).append(emission.job.id)
            if emission.due_at is not None and receipts[0] is Receipt.CONFIRMED:
                emitted += 1
                late = (times.confirmed_at - emission.due_at).total_seconds()
                metrics.due_lag.observe(late)
                priority = emission.definition.priority
                if priority is not None:
                    classes[priority.value] += 1
                    metrics.lag_by_class.labels(priority.value).observe(late)
            missed = reports(emission)
            if missed and (refusal is None or _gives_up(emission, refusal)):
                metrics.jobs_missed.inc(sum(group.count for group in missed))
        metrics.jobs_due.inc(emitted)
        classes["normal"] = emitted - classes["high"] - classes["low"]
        for name, count in classes.items():
            metrics.due_by_class.labels(name).inc(count)
        for (receipt, exchange, key), ids in failed.items():
            _, advice = not_delivered(receipt, exchange, key)
            count_unoffered(receipt, key, len(ids))
            _warnings[receipt].warning(
                count=len(ids), reason=receipt.value, exchange=exchange, routing_key=key,
                job_ids=ids[:MAX_LOGGED_IDS], do=advice,
            )
        if given_up:
            _given_up.warning(
                count=len(given_up), exchange=EVENTS_EXCHANGE, routing_key="missed",
                job_ids=given_up[:MAX_LOGGED_IDS],
                do="empty the queues bound to `missed`, or raise their limits: one of them refuses messages",
            )
        if log.shows_debug:
            _log_events(results, times)

    def traced(self, results: Sequence[EmissionResult[Emission]]) -> list[Traced]:
        """Return the events whose request belongs to a trace."""
        traced = []
        for emission, receipts, _ in results:
            definition = emission.definition
            if emission.due_at is None or definition.traceparent is None:
                continue
            attributes = {name: value for name, value in _ids(emission).items() if value}
            failed = None if receipts[0] is Receipt.CONFIRMED else receipts[0].value
            traced.append(Traced(definition.traceparent, definition.tracestate, attributes, failed))
        return traced


def missed_message(job: Job, missed: Missed, stamp: EmissionTime) -> Publishable:
    """Return the ScheduleMissed of passed occurrences of a job."""
    assert job.definition is not None  # noqa: S101 - only a defined job has occurrences
    return json_message(
        EVENTS_EXCHANGE, "missed", "ScheduleMissed", missed_body(job, missed),
        correlation_id=job.definition.correlation_id, timestamp=stamp.seconds,
        message_id=missed_id(job.id, missed),
    )


def _is_replanned(emission: Emission) -> bool:
    """Return whether a changed calendar moved the next run of a due job before it was planned again."""
    state = emission.adjusted
    return (
        state is not None and emission.missed is None and emission.calendar_version is not None
        and state.next_run_at != emission.job.next_run_at
    )


def _replanned_message(emission: Emission, stamp: EmissionTime) -> Publishable:
    spec, version = emission.definition.spec, emission.calendar_version
    cause, after = Cause("calendar", spec.calendar or "", version or 0), settle(emission)
    return json_message(
        EVENTS_EXCHANGE, "replanned", "ScheduleReplanned", replanned_body(emission.job, after, cause),
        correlation_id=emission.definition.correlation_id, timestamp=stamp.seconds,
        message_id=replanned_id(emission.job, after, cause),
    )


def _unrecord(settlement: JobSettlement, event_id: str, before: Run | None) -> None:
    """Undo the record of a run whose event was not emitted, but keep results received before it."""
    if before is None:
        settlement.unrecorded.append(event_id)
    elif before.status is RunStatus.EXPECTED:
        settlement.unmerged.append(before)


def _add(settlement: JobSettlement, emission: Emission) -> None:
    job, due_at = emission.job, emission.due_at
    if emission.held:
        settlement.held.append((job.id, job.held_by or ""))
    elif emission.waits_until is not None:
        settlement.waiting.append((job.id, emission.waits_until))
    elif emission.triggered:
        (settlement.skipped_triggers if due_at is None else settlement.triggered).append(job.id)
    elif emission.adjusted is not None:
        settlement.adjusted.append(AdjustedOccurrence(job.id, due_at, emission.adjusted))
    elif due_at is not job.next_run_at:
        settlement.passed.append(SkippedOccurrences(job.id, emission.next_run_at, due_at is not None, due_at))
    elif emission.next_run_text is None:
        settlement.done.append(job.id)
    else:
        settlement.moved.append((job.id, emission.next_run_text))


def _gives_up(emission: Emission, refusal: Receipt | None) -> bool:
    """Return whether the job goes on although the broker refuses its message: only events must reach a queue."""
    return (
        emission.event_id is None and refusal in {Receipt.REFUSED, Receipt.UNSENDABLE}
        and emission.job.retries >= MISSED_RETRIES
    )


def _has_given_up(emission: Emission, receipts: Sequence[Receipt], refusal: Receipt | None) -> bool:
    """Return whether a ScheduleMissed is not published again."""
    followed_event = refusal is None and any(receipt is not Receipt.CONFIRMED for receipt in receipts)
    return followed_event or _gives_up(emission, refusal)


def _has_no_queue(emission: Emission, refusal: Receipt, times: BatchTimes) -> bool:
    """Return whether the work of a run has been returned for its whole start_timeout: it will be dead.

    A job that is late for another reason, such as an outage, first gets some time for its workers to start.
    """
    policy, due_at = emission.definition.run, emission.due_at
    if refusal is not Receipt.RETURNED or policy is None or emission.definition.target is None or due_at is None:
        return False
    if emission.previous_run is not None:
        return False
    returned = sum(retry_delay(retries, 0.0) for retries in range(emission.job.retries))  # seconds, at least
    late = (times.claimed_at - due_at).total_seconds()
    return late >= policy.start_timeout and returned >= min(policy.start_timeout, MIN_RETURNED_SECONDS)


def _retry_seconds(job: Job) -> float:
    return retry_delay(job.retries, random.random())  # noqa: S311 - jitter, not a secret


def retry_delay(retries: int, jitter: float) -> float:
    """Return the seconds before the next retry: doubling from one second to a minute, with jitter in 0…1."""
    span = min(2.0 ** min(retries, 10), 60.0)
    return span * (0.5 + 0.5 * jitter)


def _due_again(settlement: JobSettlement, times: BatchTimes) -> datetime | None:
    if settlement.triggered or settlement.skipped_triggers:  # more triggers or the scheduled occurrence may be due
        return LONG_AGO
    due_times = [skipped.following for skipped in settlement.passed if skipped.following is not None]
    if settlement.moved:
        # The strings sort like the instants.
        due_times.append(parse_instant(min(following for _, following in settlement.moved)))
    due_times += [at for adjusted in settlement.adjusted if (at := adjusted.state.next_run_at) is not None]
    due_times += [until for _, until in settlement.waiting]
    due_times += [times.confirmed_at + timedelta(seconds=failed.seconds or 0.0) for failed in settlement.failed]
    soonest = min(due_times, default=None)
    return LONG_AGO if soonest is not None and soonest <= times.claimed_at else soonest


def _address(emission: Emission) -> tuple[str, str]:
    """Return the exchange and the routing key of a job's event."""
    definition = emission.definition
    if definition.target is None and definition.route is None:
        return EVENTS_EXCHANGE, "due"
    return due_address(definition.route, None if definition.target is None else work_key(definition.target))


def _emitted(emission: Emission) -> runs_due.EmittedOccurrence:
    definition, due_at = emission.definition, emission.due_at
    assert due_at is not None  # noqa: S101 - the caller checked it
    origin = Origin.TRIGGER if emission.triggered else Origin.SCHEDULE
    job = emission.job
    return runs_due.EmittedOccurrence(emission.event_id or "", job.id, definition.job_type, due_at, origin,
                                      job.tenant)


def _first_run(emission: Emission, emitted_at: datetime, replica: str | None) -> Run:
    assert emission.event_id is not None  # noqa: S101 - the caller checked it
    if emission.run is None:
        emission.run = deliver_run(None, emission.event_id, occurrence(emission), emitted_at, replica)
    return emission.run


def _ids(emission: Emission) -> dict[str, str | None]:
    correlation_id = emission.definition.correlation_id
    return {"job_id": emission.job.id, "event_id": emission.event_id, "correlation_id": correlation_id}


def _log_events(results: Sequence[EmissionResult[Emission]], times: BatchTimes) -> None:
    """Log each event at debug level."""
    for emission, receipts, _ in results:
        if emission.due_at is None:
            continue
        late = times.confirmed_at - emission.due_at
        log.debug("emitted", **_ids(emission), trace_id=traces.trace_id(emission.definition.traceparent),
                  due_at=emission.due_at, late_ms=round(late.total_seconds() * 1000, 3), receipt=receipts[0].value)
