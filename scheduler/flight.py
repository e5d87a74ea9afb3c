"""One batch of due jobs on its way: claimed, published, confirmed, settled."""

import random
import time
from datetime import datetime, timedelta

import pika

from scheduler.domain.emission import DueJob, Emission, decide, due_body, missed_body
from scheduler.domain.errors import Unavailable
from scheduler.domain.times import rfc3339
from scheduler.ops import metrics, traces
from scheduler.ops.logs import get_logger
from scheduler.ops.storms import Storm
from scheduler.ops.traces import Traced
from scheduler.postgres.claims import LONG_AGO, Claims, Settlement, delay
from scheduler.rabbit.frames import DueMessage, Message, Publishable
from scheduler.rabbit.link import BrokerUnavailable
from scheduler.rabbit.publisher import Batch, Publisher, Receipt
from scheduler.rabbit.topology import EVENTS

log = get_logger(__name__)

# Rows are held no longer than this: well below the database's own limit for an idle transaction, so that a
# replica that was frozen finds out before it publishes what another has taken over.
HOLD_SECONDS = 10.0
# What a rule has missed since a distant start takes a while to count. What is not decided by then is let go of.
DECIDE_SECONDS = 3.0


class Flight:
    """A batch between its claim and its settlement; empty when nothing was due."""

    def __init__(self, lane: Claims, limit: int, floor: datetime = LONG_AGO) -> None:
        """Claim what is due."""
        self._lane = lane
        self._started = time.monotonic()
        claim = lane.claim(limit, floor)
        self._answered = time.monotonic()
        self.claim_seconds = self._answered - self._started
        self._claimed_at = claim.claimed_at
        self._seconds_to_next = claim.seconds_to_next
        self._jobs = claim.jobs
        self._emissions: list[Emission] = []
        self._settlement = Settlement()
        self._batch: Batch | None = None
        self._sent = self._started
        self._undecided = 0
        # When the first of its jobs is due again, LONG_AGO if already: no claim can tell before this has landed.
        self.returns_at: datetime | None = None
        self.landed = False
        self.refused = False
        self.full = len(claim.jobs) >= limit
        self.newest = claim.jobs[-1].wake_at if claim.jobs else None
        _observe("claim", self._started)

    def take_off(self, publisher: Publisher) -> None:
        """Decide what each job emits and put that on its way."""
        if not self._jobs:
            return
        began = self._sent = time.monotonic()
        metrics.batch_size.observe(len(self._jobs))
        now = self.database_time()
        stamp, timestamp = rfc3339(now), int(now.timestamp())
        messages: list[Publishable] = []
        for index, job in enumerate(self._jobs):
            if index and self.age > DECIDE_SECONDS:
                self._undecided = len(self._jobs) - index
                break
            emission = self._decide(job)
            if emission is not None:
                self._emissions.append(emission)
                messages += _messages(emission, stamp, timestamp)
        if self.age > HOLD_SECONDS:
            raise Unavailable("this process stood still while it held due jobs; they are left to others")
        self._batch = publisher.send(messages)
        _observe("publish", began)

    def land(self) -> None:
        """Wait for the confirms, settle every job by its own, and let go of them all."""
        self.landed = True
        if not self._jobs:
            return
        began = time.monotonic()
        receipts = self._batch.wait(max(0.0, HOLD_SECONDS - self.age)) if self._batch else []
        confirmed_at = self.database_time()
        _observe("confirm", began)
        answered = iter(receipts)
        for emission in self._emissions:
            due = next(answered) if emission.due_at else Receipt.CONFIRMED
            missed = next(answered) if emission.missed else Receipt.CONFIRMED
            self._settle(emission, missed if missed is not Receipt.CONFIRMED else due)
        began = time.monotonic()
        self._lane.settle(self._settlement)
        _observe("settle", began)
        self.returns_at = self._returns_at()
        self.refused = Receipt.REFUSED in receipts
        self._count(receipts, confirmed_at)

    @property
    def age(self) -> float:
        """Seconds since the claim."""
        return time.monotonic() - self._started

    @property
    def seconds_to_next(self) -> float | None:
        """Seconds until the next job that was not due yet falls due; None when none waits."""
        # Counted from the answer: from the claim's start, a producer would wake too early by what the claim took,
        # find nothing due, and rest once more.
        since = time.monotonic() - self._answered
        return None if self._seconds_to_next is None else self._seconds_to_next - since

    def seconds_to(self, moment: datetime) -> float:
        """Seconds until a moment by the database's clock."""
        return (moment - self.database_time()).total_seconds()

    @property
    def leaves_due(self) -> bool:
        """Whether some of its jobs are due again already."""
        return any(following <= self._claimed_at for _, following, _ in self._settlement.moved) or bool(
            self._settlement.triggered or self._undecided
        )

    def _returns_at(self) -> datetime | None:
        if self.leaves_due:
            return LONG_AGO
        again = [following for _, following, _ in self._settlement.moved]
        if self._settlement.failed:
            soonest = min(seconds for _, seconds in self._settlement.failed)
            again.append(self.database_time() + timedelta(seconds=soonest))
        return min(again, default=None)

    def database_time(self) -> datetime:
        """Return the database's time now: its time at the claim, and our steady clock since."""
        return self._claimed_at + timedelta(seconds=self.age)

    def _decide(self, job: DueJob) -> Emission | None:
        try:
            return decide(job, self._claimed_at)
        except Exception as error:  # noqa: BLE001 - whatever a row written by hand may hold
            # One row that cannot be read must not stop the others.
            _unreadable.warning(job_id=job.id, problem=f"{type(error).__name__}: {error}"[:500],
                                do="look at its row in the table jobs; send its request again or cancel it")
            self._fail(job)
            return None

    def _settle(self, emission: Emission, receipt: Receipt) -> None:
        job = emission.job
        if receipt is Receipt.UNKNOWN:
            return
        if receipt is not Receipt.CONFIRMED:
            self._fail(job)
        elif emission.triggered:
            self._settlement.triggered.append(job.id)
        elif emission.next_run_at is None:
            (self._settlement.passed if emission.due_at is None else self._settlement.done).append(job.id)
        else:
            self._settlement.moved.append((job.id, emission.next_run_at, int(emission.due_at is not None)))

    def _fail(self, job: DueJob) -> None:
        self._settlement.failed.append((job.id, delay(job.retries, random.random())))  # noqa: S311 - jitter

    def _count(self, receipts: list[Receipt], confirmed_at: datetime) -> None:
        answered = iter(receipts)
        for emission in self._emissions:
            if emission.due_at and next(answered) is Receipt.CONFIRMED:
                metrics.jobs_due.inc()
                metrics.due_lag.observe((confirmed_at - emission.due_at).total_seconds())
            if emission.missed and next(answered) is Receipt.CONFIRMED:
                metrics.jobs_missed.inc(emission.missed.count)
        for receipt in Receipt:
            if count := receipts.count(receipt):
                metrics.confirms.labels(receipt.value).inc(count)
                if receipt is not Receipt.CONFIRMED:
                    metrics.publish_failures.labels(receipt.value).inc(count)
                    _failures[receipt].warning(count=count, reason=receipt.value, do=_ADVICE[receipt])
        metrics.retries.inc(len(self._settlement.failed))
        if log.shows_debug or traces.sink is not None:
            self._tell(receipts, confirmed_at)
        if Receipt.UNKNOWN in receipts:
            raise BrokerUnavailable(self._batch.lost if self._batch else "")

    def _tell(self, receipts: list[Receipt], confirmed_at: datetime) -> None:
        """Show each event: a debug line, and a span where its request belongs to a trace."""
        traced = []
        answered = iter(receipts)
        for emission in self._emissions:
            receipt = next(answered) if emission.due_at else None
            if emission.missed:
                next(answered)
            if emission.due_at is None or receipt is None:
                continue
            job = emission.job
            ids = {
                "job_id": job.id, "event_id": emission.event_id, "correlation_id": job.correlation_id
            }
            log.debug("emitted", **ids, trace_id=traces.trace_id(job.traceparent), due_at=emission.due_at,
                      late_ms=round((confirmed_at - emission.due_at).total_seconds() * 1000, 3),
                      receipt=receipt.value)
            if job.traceparent is not None:
                attributes = {name: value for name, value in ids.items() if value}
                failed = None if receipt is Receipt.CONFIRMED else receipt.value
                traced.append(Traced(job.traceparent, job.tracestate, attributes, failed))
        if traces.sink is not None and traced:
            ended = time.time_ns()
            claimed, sent = (ended - int((time.monotonic() - at) * 1e9) for at in (self._started, self._sent))
            traces.sink.emitted(claimed, sent, ended, len(self._jobs), traced)


_ADVICE = {
    Receipt.RETURNED: "bind a queue to schedule.events with the routing key due; they are tried again",
    Receipt.REFUSED: "the queue behind schedule.events is full or unavailable; they are tried again",
    Receipt.UNKNOWN: "the broker went away before it answered; they are sent again, with the same event_id",
}


_unreadable = Storm(log, "job cannot be read")
_failures = {receipt: Storm(log, "events not delivered") for receipt in _ADVICE}


def _messages(emission: Emission, emitted_at: str, timestamp: int) -> list[Publishable]:
    messages: list[Publishable] = []
    job = emission.job
    if emission.event_id is not None:
        body = due_body(emission, emitted_at)
        messages.append(DueMessage(body, emission.event_id, timestamp, job.correlation_id, _trace(job)))
    if emission.missed is not None:
        properties = pika.BasicProperties(
            content_type="application/json", delivery_mode=2, type="ScheduleMissed", app_id="scheduler",
            correlation_id=job.correlation_id, timestamp=timestamp,
        )
        messages.append(Message(EVENTS, "missed", missed_body(emission), properties, mandatory=False))
    return messages


def _trace(job: DueJob) -> dict[str, str] | None:
    if job.traceparent is None and job.tracestate is None:
        return None
    pairs = (("traceparent", job.traceparent), ("tracestate", job.tracestate))
    return {name: value for name, value in pairs if value is not None}


def _observe(phase: str, began: float) -> None:
    metrics.loop_seconds.labels(phase).observe(time.monotonic() - began)
