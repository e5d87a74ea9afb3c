"""The source of due delayed messages: each is published unchanged to its exit exchange, or dead-lettered."""

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
_UNKNOWN_EXCHANGE = "its exchange is not among SCHEDULER_DELAY_EXCHANGES of this producer"
_UNREADABLE = "the scheduler cannot send it: see its log"
_refused = ThrottledWarning(log, "delayed messages not delivered")
_dead = ThrottledWarning(log, "delayed message dead-lettered")


@dataclass(slots=True)
class DelayedEmission:
    """A message, and whether it is dead-lettered."""

    message: DelayedMessage
    dead: bool = False
    unknown_exchange: bool = False  # not published: the broker could close the channel


class DueDelayed(Source[DelayedMessage, DelayedEmission]):
    """The source of delayed messages."""

    kind = KIND
    tables = ("delayed_messages",)
    classes = due.CLASSES
    # Consumers announce messages that fall due sooner than this.
    notice_seconds: float | None = IDLE_POLL_SECONDS
    idle_seconds = 0.0

    def __init__(self, user: str, frame_max: int, exits: Collection[str]) -> None:
        """Publish as this broker user, in frames of this size, to these exit exchanges."""
        self._user = user
        self._frame_max = frame_max
        self._exits = frozenset(exits)

    def claim(self, session: ClaimSession, limit: int, since: Sequence[datetime]) -> Claim[DelayedMessage]:
        """Lock the due messages."""
        return due.claim(session, limit, since)

    def name(self, message: DelayedMessage) -> str:
        """Return the id of its row."""
        return str(message.id)

    def decide(self, message: DelayedMessage, now: datetime) -> DelayedEmission:
        """Decide whether a message is published or dead-lettered."""
        if message.unroutable_at is None and message.exchange in self._exits:
            return DelayedEmission(message)
        unknown_exchange = message.exchange is not None and message.exchange not in self._exits
        return DelayedEmission(message, message.is_exhausted(now), unknown_exchange)

    def messages(self, emission: DelayedEmission, stamp: EmissionTime) -> Sequence[Publishable]:
        """Return the message; nothing for an expired tombstone."""
        message = emission.message
        if message.exchange is None:
            return ()
        if not emission.dead:
            if emission.unknown_exchange:
                return ()
            return (forwarded_message(
                message.exchange, message.routing_key, message.properties, message.body, user=self._user,
                frame_max=self._frame_max,
            ),)
        headers: dict[str, str | int] = {
            "x-dead-reason": f"no queue accepted it for an hour: {message.problem}", "x-dead-at": stamp.text,
            "x-attempts": message.retries, "x-due-at": rfc3339(message.due_at),
            ORIGINAL_EXCHANGE: message.exchange,
        }
        return (dead_letter_that_fits(
            message.routing_key, message.properties, message.body, headers, self._frame_max
        ),)

    def settle(
        self, session: ClaimSession, results: Sequence[EmissionResult[DelayedEmission]],
        unreadable: Sequence[DelayedMessage], times: BatchTimes,
    ) -> datetime | None:
        """Delete confirmed messages, postpone refused ones, and leave unconfirmed ones due."""
        settlement = DelayedSettlement()
        for emission, _, refusal in results:
            if emission.unknown_exchange and not emission.dead:
                settlement.postponed.append(_postponed(emission.message, Receipt.RETURNED, _UNKNOWN_EXCHANGE))
            elif refusal is None:
                settlement.done.append(emission.message.id)
            elif refusal is not Receipt.UNKNOWN:
                settlement.postponed.append(_postponed(emission.message, refusal))
        settlement.postponed += [_postponed(message, None) for message in unreadable]
        due.settle(session, settlement)
        metrics.retries.inc(len(settlement.postponed))
        due_times = [times.confirmed_at + timedelta(seconds=message.seconds) for message in settlement.postponed]
        if any(refusal is Receipt.UNKNOWN for _, _, refusal in results):
            return LONG_AGO
        return min(due_times, default=None)

    def report(self, results: Sequence[EmissionResult[DelayedEmission]], times: BatchTimes) -> None:
        """Count published and dead-lettered messages, and log the others."""
        late: list[float] = []
        refused = 0
        for emission, receipts, refusal in results:
            if refusal is not None or (emission.unknown_exchange and not emission.dead):
                refused += 1
            elif emission.dead:
                metrics.delayed_dead.inc()
                _dead.warning(id=emission.message.id, exchange=emission.message.exchange,
                              attempts=emission.message.retries, problem=emission.message.problem,
                              do="check the message in scheduler_dead, and bind a queue to its exchange")
            elif receipts:
                late.append((times.confirmed_at - emission.message.due_at).total_seconds())
        metrics.delayed_out.inc(len(late))
        metrics.delayed_lag.observe_all(late)
        if refused:
            _refused.warning(count=refused, do="`scheduler delayed list` shows why; bind a queue to their exit "
                                               "exchange; they are retried for an hour")


def _postponed(message: DelayedMessage, refusal: Receipt | None, why: str | None = None) -> PostponedMessage:
    seconds = retry_delay(message.retries, random.random())  # noqa: S311 - jitter, not a secret
    problem = why or (_UNREADABLE if refusal is None else _PROBLEMS[refusal])
    return PostponedMessage(message.id, seconds, problem, refusal is Receipt.RETURNED)
