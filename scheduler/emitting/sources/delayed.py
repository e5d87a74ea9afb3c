"""Delayed messages fall due: each comes out of its exit as it came in, or is given up in the end."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.domain.delayed.message import IDLE_POLL_SECONDS, DelayedMessage
from scheduler.domain.instants import rfc3339
from scheduler.emitting.run_messages import UNSENDABLE
from scheduler.emitting.source import BatchTimes, EmissionResult, EmissionTime, Source
from scheduler.emitting.sources.jobs import retry_delay
from scheduler.ops import metrics
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.claims import LONG_AGO, Claim, ClaimSession
from scheduler.postgres.delayed import due
from scheduler.postgres.delayed.due import DelayedSettlement, PostponedMessage
from scheduler.postgres.delayed.store import KIND
from scheduler.rabbit.frames import Publishable
from scheduler.rabbit.message_forwarding import ORIGINAL_EXCHANGE, dead_letter_that_fits, forwarded_message
from scheduler.rabbit.publisher import Receipt

log = get_logger(__name__)

_PROBLEMS = {
    Receipt.RETURNED: "returned: no queue is bound to its exchange for its routing key",
    Receipt.REFUSED: "refused: a queue behind its exchange is full or unavailable",
    Receipt.UNSENDABLE: UNSENDABLE,
}
_HOMELESS = "its exchange is not among SCHEDULER_DELAY_EXCHANGES of this producer"
_UNREADABLE = "the scheduler cannot write it: see its log"
_refused = ThrottledWarning(log, "delayed messages not delivered")
_dead = ThrottledWarning(log, "delayed message given up")


@dataclass(slots=True)
class DelayedEmission:
    """A message, and whether it is given up."""

    message: DelayedMessage
    given_up: bool = False
    unknown_exchange: bool = False  # its exit is none of ours: to publish there could end the channel, for all


class DueDelayed(Source[DelayedMessage, DelayedEmission]):
    """The source of delayed messages that come out."""

    kind = KIND
    tables = ("delayed_messages",)
    classes = due.CLASSES
    # Consumers tell of whatever falls due sooner than this.
    look_seconds: float | None = IDLE_POLL_SECONDS
    idle_seconds = 0.0

    def __init__(self, user: str, frame_max: int, exits: Collection[str]) -> None:
        """Take as whom we are connected, how long a frame may be, and which exits there are."""
        self._user = user
        self._frame_max = frame_max
        self._exits = frozenset(exits)

    def claim(self, session: ClaimSession, limit: int, since: Sequence[datetime]) -> Claim[DelayedMessage]:
        """Lock the messages whose time has come."""
        return due.claim(session, limit, since)

    def name(self, message: DelayedMessage) -> str:
        """Return the number under which it is stored."""
        return str(message.id)

    def decide(self, message: DelayedMessage, now: datetime) -> DelayedEmission:
        """Say whether it is tried, or given up."""
        if message.unroutable_at is None and message.exchange in self._exits:
            return DelayedEmission(message)
        unknown_exchange = message.exchange is not None and message.exchange not in self._exits
        return DelayedEmission(message, message.is_exhausted(now), unknown_exchange)

    def messages(self, emission: DelayedEmission, stamp: EmissionTime) -> Sequence[Publishable]:
        """Return the message; nothing for a cancel whose hour is over."""
        it = emission.message
        if it.exchange is None:
            return ()
        if not emission.given_up:
            if emission.unknown_exchange:
                return ()
            return (forwarded_message(
                it.exchange, it.routing_key, it.properties, it.body, user=self._user, frame_max=self._frame_max
            ),)
        headers: dict[str, str | int] = {
            "x-dead-reason": f"no queue took it for an hour: {it.problem}", "x-dead-at": stamp.text,
            "x-attempts": it.retries, "x-due-at": rfc3339(it.due_at), ORIGINAL_EXCHANGE: it.exchange,
        }
        return (dead_letter_that_fits(it.routing_key, it.properties, it.body, headers, self._frame_max),)

    def settle(
        self, session: ClaimSession, results: Sequence[EmissionResult[DelayedEmission]],
        unreadable: Sequence[DelayedMessage], times: BatchTimes,
    ) -> datetime | None:
        """Delete what is out; keep what the broker did not take, and leave as it is what it did not answer for."""
        settlement = DelayedSettlement()
        for emission, _, refusal in results:
            if emission.unknown_exchange and not emission.given_up:
                settlement.postponed.append(_postponed(emission.message, Receipt.RETURNED, _HOMELESS))
            elif refusal is None:
                settlement.done.append(emission.message.id)
            elif refusal is not Receipt.UNKNOWN:
                settlement.postponed.append(_postponed(emission.message, refusal))
        settlement.postponed += [_postponed(each, None) for each in unreadable]
        due.settle(session, settlement)
        metrics.retries.inc(len(settlement.postponed))
        again = [times.confirmed_at + timedelta(seconds=each.seconds) for each in settlement.postponed]
        if any(refusal is Receipt.UNKNOWN for _, _, refusal in results):
            return LONG_AGO
        return min(again, default=None)

    def report(self, results: Sequence[EmissionResult[DelayedEmission]], times: BatchTimes) -> None:
        """Count what came out and what was given up, and warn of what was not taken."""
        late: list[float] = []
        refused = 0
        for emission, receipts, refusal in results:
            if refusal is not None or (emission.unknown_exchange and not emission.given_up):
                refused += 1
            elif emission.given_up:
                metrics.delayed_dead.inc()
                _dead.warning(id=emission.message.id, exchange=emission.message.exchange,
                              attempts=emission.message.retries, problem=emission.message.problem,
                              do="see the message in scheduler_dead, and bind a queue to its exchange")
            elif receipts:
                late.append((times.confirmed_at - emission.message.due_at).total_seconds())
        metrics.delayed_out.inc(len(late))
        metrics.delayed_lag.observe_all(late)
        if refused:
            _refused.warning(count=refused, do="`scheduler delayed list` says why; see that a queue is bound to "
                                               "the exchange that they come out of; they are tried for an hour")


def _postponed(message: DelayedMessage, refusal: Receipt | None, why: str | None = None) -> PostponedMessage:
    seconds = retry_delay(message.retries, random.random())  # noqa: S311 - jitter, not a secret
    problem = why or (_UNREADABLE if refusal is None else _PROBLEMS[refusal])
    return PostponedMessage(message.id, seconds, problem, refusal is Receipt.RETURNED)
