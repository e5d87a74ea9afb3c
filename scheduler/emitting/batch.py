"""A batch of due rows of one source: claimed, published, confirmed, settled."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Generic

from scheduler.domain.errors import Unavailable
from scheduler.emitting.source import BatchTimes, Emission, EmissionResult, EmissionTime, Item, Source
from scheduler.ops import metrics, traces
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession
from scheduler.rabbit.event_publisher import EventConfirms, EventPublisher
from scheduler.rabbit.frames import Publishable
from scheduler.rabbit.link import RabbitUnavailable
from scheduler.rabbit.publisher import Receipt

log = get_logger(__name__)

# Maximum time for which rows stay locked: well below the database's limit for an idle transaction, so that a
# replica that was frozen notices it before it publishes rows that another replica has claimed since.
HOLD_SECONDS = 10.0
# Counting the missed occurrences of a rule with a distant start takes time; rows undecided by then are released.
DECIDE_SECONDS = 3.0
RESENDS = 2  # of a refused follow-up message

_unreadable = ThrottledWarning(log, "due row cannot be read")


class Batch(Generic[Item, Emission]):
    """Due rows between their claim and their settlement; empty if nothing was due."""

    def __init__(
        self, source: Source[Item, Emission], session: ClaimSession, claim: Claim[Item], started: float,
    ) -> None:
        """Hold a claim of the session, which began at this time of the monotonic clock."""
        self.source = source
        self.session = session
        self._claim = claim
        self._started = self._sent = started
        # The claim reports the seconds until the next row is due as of its end. Counted from its start, a producer
        # would wake up too early by the duration of the claim.
        self._claim_ended = time.monotonic()
        self._emissions: list[Emission] = []
        self._counts: list[int] = []  # how many messages each emission has
        self._unreadable: list[Item] = []
        self._undecided = 0
        self._publisher: EventPublisher | None = None
        self._confirms: EventConfirms | None = None
        self._lost = ""  # why there is no confirm
        self._emitted_at = claim.claimed_at
        self.empty = not claim.things
        self.full = claim.full
        self.size = claim.size
        self.urgent = claim.urgent
        self.resume_from = claim.resume_from
        self.renew_channel = False  # an event was refused, or is still unconfirmed

    @classmethod
    def claimed(
        cls, source: Source[Item, Emission], session: ClaimSession, limit: int, since: Sequence[datetime]
    ) -> "Batch[Item, Emission]":
        """Claim due rows of a source; raise LockTimeout while another session prevents settling them."""
        started = time.monotonic()
        session.tables = source.tables
        claim = source.claim(session, limit, since)
        # Not from the start: the first claim of a kind is prepared before the database reports its time.
        batch = cls(source, session, claim, session.claimed_from)
        _observe("claim", started)
        return batch

    def publish(self, publisher: EventPublisher) -> None:
        """Decide and send the messages of each row."""
        if self.empty:
            return
        began = self._sent = time.monotonic()
        metrics.batch_size.observe(len(self._claim.things))
        self._emitted_at = self.database_time()
        messages = self._decide()
        self.source.record(self.session, self._emissions, self._emitted_at)
        if self.age > HOLD_SECONDS:
            raise Unavailable("this process was stalled while it held due rows; another replica takes them over")
        self._publisher = publisher
        self._confirms = publisher.send(messages)
        _observe("publish", began)

    def _decide(self) -> list[Publishable]:
        messages: list[Publishable] = []
        items, now, source = self._claim.things, self._claim.claimed_at, self.source
        stamp = self._stamp = EmissionTime.of(self._emitted_at)
        for index, item in enumerate(items):
            if index and time.monotonic() - self._sent > DECIDE_SECONDS:
                self._undecided = len(items) - index
                break
            try:
                emission = source.decide(item, now)
                written = source.messages(emission, stamp)
            except Exception as error:  # noqa: BLE001 - a row written by hand may contain anything
                # One unreadable row must not stop the others.
                _unreadable.warning(kind=source.kind, id=source.name(item),
                                    problem=f"{type(error).__name__}: {error}"[:500],
                                    do="check its row in the table; resend its request or cancel it")
                self._unreadable.append(item)
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
        """Wait for the confirms, settle each row by its own, release all rows; return when the first is due again.

        LONG_AGO if one is due now: claims could not see it while it was locked.
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
        has_overtaken = self._confirms is not None and self._confirms.has_overtaken
        self.renew_channel = has_overtaken or Receipt.REFUSED in receipts
        self._report(results, receipts, times)
        self._free_memory()
        if Receipt.UNKNOWN in receipts:
            raise RabbitUnavailable(self._lost)
        if self._undecided:
            return LONG_AGO
        return min((at for at in (due_again, self._claim.left_from) if at is not None), default=None)

    def _free_memory(self) -> None:
        """Free rows and messages: the loop keeps its last batch for its times."""
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
        """Publish the follow-up messages, add their receipts to the results, and return them.

        Only events must reach a queue: an event is not emitted again because the broker refuses its follow-up.
        """
        indexes, messages = zip(*follow_ups, strict=True)
        receipts = self._send(messages)
        for _ in range(RESENDS):
            refused = [at for at, receipt in enumerate(receipts) if receipt is Receipt.REFUSED]
            if not refused:
                break
            for at, receipt in zip(refused, self._send([messages[at] for at in refused]), strict=True):
                receipts[at] = receipt
        for index, receipt in zip(indexes, receipts, strict=True):
            emission, own, refusal = results[index]
            unconfirmed = receipt in {Receipt.UNKNOWN, Receipt.SLOW}
            results[index] = (emission, [*own, receipt], receipt if unconfirmed else refusal)
        return receipts

    def _send(self, messages: Sequence[Publishable]) -> list[Receipt]:
        """Publish messages and wait for their confirms; unconfirmed ones are resent with their events."""
        if self._publisher is not None and self.age < HOLD_SECONDS:
            try:
                return self._confirmed(self._publisher.send(messages))
            except RabbitUnavailable as error:
                self._lost = str(error)
        return [Receipt.UNKNOWN] * len(messages)

    def _results(self, receipts: Sequence[Receipt]) -> list[EmissionResult[Emission]]:
        """Return each emission with the receipts of its messages."""
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
        """When the next row falls due, by the monotonic clock; None if there is none."""
        seconds = self._claim.seconds_to_next
        return None if seconds is None else self._claim_ended + seconds

    @property
    def claim_seconds(self) -> float:
        """Duration of the claim."""
        return self._claim_ended - self._started

    def steady(self, instant: datetime) -> float:
        """Convert an instant of the database's clock to the monotonic clock."""
        return self._started + (instant - self._claim.claimed_at).total_seconds()

    def database_time(self) -> datetime:
        """Return the database's current time: its time at the claim plus the monotonic clock since."""
        return self._claim.claimed_at + timedelta(seconds=self.age)

    @property
    def age(self) -> float:
        """Seconds since the claim began."""
        return time.monotonic() - self._started


def _first_refusal(receipts: Sequence[Receipt]) -> Receipt | None:
    return next((receipt for receipt in reversed(receipts) if receipt is not Receipt.CONFIRMED), None)


def _observe(phase: str, began: float) -> None:
    metrics.loop_seconds.labels(phase).observe(time.monotonic() - began)
