"""Due things of one source on their way: claimed, published, confirmed, settled."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Generic

from scheduler.domain.errors import Unavailable
from scheduler.emitting.source import BatchTimes, Emission, EmissionResult, EmissionTime, Source, Thing
from scheduler.ops import metrics, traces
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession
from scheduler.rabbit.event_publisher import EventConfirms, EventPublisher
from scheduler.rabbit.frames import Publishable
from scheduler.rabbit.link import RabbitUnavailable
from scheduler.rabbit.publisher import Receipt

log = get_logger(__name__)

# Rows are held no longer than this: well below the database's own limit for an idle transaction, so that a
# replica that was frozen finds out before it publishes what another has taken over.
HOLD_SECONDS = 10.0
# What a rule has missed since a distant start takes a while to count. What is not decided by then is let go of.
DECIDE_SECONDS = 3.0

_unreadable = ThrottledWarning(log, "due row cannot be read")


class Batch(Generic[Thing, Emission]):
    """Things between their claim and their settlement; none when nothing was due."""

    def __init__(
        self, source: Source[Thing, Emission], session: ClaimSession, claim: Claim[Thing], started: float,
    ) -> None:
        """Take what was claimed in the session, and the steady clock's time when that began."""
        self.source = source
        self.session = session
        self._claim = claim
        self._started = self._sent = started
        # Counted from the answer: from the claim's start, a producer would wake too early by what the claim took,
        # find nothing due, and rest once more.
        self._answered = time.monotonic()
        self._emissions: list[Emission] = []
        self._counts: list[int] = []  # how many messages each emission has
        self._unreadable: list[Thing] = []
        self._undecided = 0
        self._publisher: EventPublisher | None = None
        self._confirms: EventConfirms | None = None
        self._lost = ""  # why the broker did not answer
        self._emitted_at = claim.claimed_at
        self.empty = not claim.things
        self.full = claim.full
        self.size = claim.size
        self.urgent = claim.urgent
        self.resume_from = claim.resume_from
        self.renew_channel = False  # an event was refused, or is still unconfirmed

    @classmethod
    def claimed(
        cls, source: Source[Thing, Emission], session: ClaimSession, limit: int, since: Sequence[datetime]
    ) -> "Batch[Thing, Emission]":
        """Claim what is due of a source; raise LockTimeout while another session keeps it from being settled."""
        started = time.monotonic()
        session.tables = source.tables
        batch = cls(source, session, source.claim(session, limit, since), started)
        _observe("claim", started)
        return batch

    def publish(self, publisher: EventPublisher) -> None:
        """Decide what each thing emits and put that on its way."""
        if self.empty:
            return
        began = self._sent = time.monotonic()
        metrics.batch_size.observe(len(self._claim.things))
        self._emitted_at = self.database_time()
        messages = self._decide()
        self.source.record(self.session, self._emissions, self._emitted_at)
        if self.age > HOLD_SECONDS:
            raise Unavailable("this process stood still while it held due rows; they are left to others")
        self._publisher = publisher
        self._confirms = publisher.send(messages)
        _observe("publish", began)

    def _decide(self) -> list[Publishable]:
        messages: list[Publishable] = []
        things, now, source = self._claim.things, self._claim.claimed_at, self.source
        stamp = self._stamp = EmissionTime.of(self._emitted_at)
        for index, thing in enumerate(things):
            if index and time.monotonic() - self._sent > DECIDE_SECONDS:
                self._undecided = len(things) - index
                break
            try:
                emission = source.decide(thing, now)
                written = source.messages(emission, stamp)
            except Exception as error:  # noqa: BLE001 - whatever a row written by hand may hold
                # One row that cannot be read must not stop the others.
                _unreadable.warning(kind=source.kind, id=source.name(thing),
                                    problem=f"{type(error).__name__}: {error}"[:500],
                                    do="look at its row in the table; send its request again or cancel it")
                self._unreadable.append(thing)
                continue
            self._emissions.append(emission)
            self._counts.append(len(written))
            messages += written
        return messages

    def confirmed(self) -> bool:
        """Wait a short while for the confirms; return whether the batch can be settled without a longer wait."""
        seconds = HOLD_SECONDS - self.age
        return self._confirms is None or seconds <= 0 or self._confirms.settled(seconds)

    def settle(self) -> datetime | None:
        """Wait for the confirms, settle each thing by its own, let go of them all; return when one is due again.

        LONG_AGO if it is already: no claim can tell before this has come back.
        """
        if self.empty:
            return None
        began = time.monotonic()
        receipts = self._confirmed(self._confirms)
        results = self._results(receipts)
        if follow_ups := self.source.follow_ups(results, self._stamp):
            receipts += self._follow_up(results, follow_ups)
        times = BatchTimes(self._claim.claimed_at, self._emitted_at, self.database_time())
        _observe("confirm", began)
        began = time.monotonic()
        due_again = self.source.settle(self.session, results, self._unreadable, times)
        _observe("settle", began)
        straggled = self._confirms is not None and self._confirms.straggled
        self.renew_channel = straggled or Receipt.REFUSED in receipts
        self._report(results, receipts, times)
        self._let_go()
        if Receipt.UNKNOWN in receipts:
            raise RabbitUnavailable(self._lost)
        if self._undecided:
            return LONG_AGO
        return min((each for each in (due_again, self._claim.left_from) if each is not None), default=None)

    def _let_go(self) -> None:
        """Free what was sent: the loop keeps its last batch to tell the time by it."""
        self._claim = replace(self._claim, things=[])
        self._emissions, self._counts, self._unreadable, self._confirms = [], [], [], None

    def _confirmed(self, confirms: EventConfirms | None) -> list[Receipt]:
        if confirms is None:
            return []
        receipts = confirms.wait(max(0.0, HOLD_SECONDS - self.age))
        if Receipt.UNKNOWN in receipts:
            self._lost = confirms.lost
        return receipts

    def _follow_up(
        self, results: list[EmissionResult[Emission]], follow_ups: Sequence[tuple[int, Publishable]]
    ) -> list[Receipt]:
        """Publish what follows the confirms, add its receipts to the results, and return them."""
        indexes, messages = zip(*follow_ups, strict=True)
        receipts = [Receipt.UNKNOWN] * len(messages)
        if self._publisher is not None and self.age < HOLD_SECONDS:
            try:
                receipts = self._confirmed(self._publisher.send(messages))
            except RabbitUnavailable as error:  # what it did not get is sent again with its event
                self._lost = str(error)
        for index, receipt in zip(indexes, receipts, strict=True):
            emission, own, _ = results[index]
            results[index] = (emission, [*own, receipt], None if receipt is Receipt.CONFIRMED else receipt)
        return receipts

    def _results(self, receipts: Sequence[Receipt]) -> list[EmissionResult[Emission]]:
        """Give each emission the receipts of its own messages."""
        results: list[EmissionResult[Emission]] = []
        at, all_confirmed = 0, receipts.count(Receipt.CONFIRMED) == len(receipts)
        for emission, count in zip(self._emissions, self._counts, strict=True):
            own = receipts[at : at + count]
            at += count
            results.append((emission, own, None if all_confirmed else _first_refusal(own)))
        return results

    def _report(self, results: list[EmissionResult[Emission]], receipts: Sequence[Receipt],
                times: BatchTimes) -> None:
        for receipt in Receipt:
            if count := receipts.count(receipt):
                metrics.confirms.labels(receipt.value).inc(count)
                if receipt is not Receipt.CONFIRMED:
                    metrics.publish_failures.labels(receipt.value).inc(count)
        self.source.report(results, times)
        if traces.sink is not None:
            ended = time.time_ns()
            claimed, sent = (ended - int((time.monotonic() - at) * 1e9) for at in (self._started, self._sent))
            if traced := self.source.traced(results):
                traces.sink.emitted(claimed, sent, ended, len(self._claim.things), traced)

    @property
    def next_due(self) -> float | None:
        """When, by the steady clock, the first that was not due yet falls due; None when none waits."""
        seconds = self._claim.seconds_to_next
        return None if seconds is None else self._answered + seconds

    @property
    def claim_seconds(self) -> float:
        """How long the claim took."""
        return self._answered - self._started

    def steady(self, moment: datetime) -> float:
        """Return a moment by the database's clock as one by the steady clock."""
        return self._started + (moment - self._claim.claimed_at).total_seconds()

    def database_time(self) -> datetime:
        """Return the database's time now: its time at the claim, and our steady clock since."""
        return self._claim.claimed_at + timedelta(seconds=self.age)

    @property
    def age(self) -> float:
        """Seconds since the claim began."""
        return time.monotonic() - self._started


def _first_refusal(receipts: Sequence[Receipt]) -> Receipt | None:
    return next((each for each in reversed(receipts) if each is not Receipt.CONFIRMED), None)


def _observe(phase: str, began: float) -> None:
    metrics.loop_seconds.labels(phase).observe(time.monotonic() - began)
