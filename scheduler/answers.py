"""What a host hears about its commands: replies, rejections, and dead letters with their reasons."""

import time
from collections.abc import Callable, Sequence

import pika

from scheduler.domain.errors import Rejected, Unavailable
from scheduler.domain.job import Outcome
from scheduler.domain.messages import ScheduleAccepted, ScheduleRejected
from scheduler.domain.parsing import claimed_id
from scheduler.ops.logs import get_logger
from scheduler.rabbit.frames import Message
from scheduler.rabbit.link import BrokerUnavailable, Link
from scheduler.rabbit.publisher import Batch, Publisher, Receipt
from scheduler.rabbit.reading import Delivery, UnreadableProperties
from scheduler.rabbit.topology import DEAD, EVENTS

log = get_logger(__name__)

CONFIRM_TIMEOUT = 20.0
Verdict = tuple[Delivery, Outcome | Rejected]
_KEPT = (
    "content_type", "content_encoding", "priority", "correlation_id", "reply_to", "message_id", "timestamp",
    "type", "app_id", "cluster_id",
)  # fmt: skip


class Answers:
    """Publishes what a batch of verdicts asks for; only dead letters can hold the batch up."""

    def __init__(self, link: Link, pause: Callable[[], None]) -> None:
        """Take what to do, again and again, while the broker blocks publishers."""
        self._link = link
        self._pause = pause
        self._publisher = Publisher(link)
        # Replies go where a host says. Should the broker close the channel over one, nothing else suffers.
        self._replies: Publisher | None = None

    def give(self, verdicts: Sequence[Verdict]) -> list[Delivery]:
        """Return once every dead letter is confirmed and in a queue; raise Unavailable otherwise.

        Returned are the rejected commands of which no copy can be made: only the broker can move them.
        """
        if not verdicts:
            return []
        rejected = [(delivery, verdict) for delivery, verdict in verdicts if isinstance(verdict, Rejected)]
        copies: list[Message] = []
        left: list[Delivery] = []
        for delivery, verdict in rejected:
            copy = _dead_letter(delivery, verdict)
            if copy is not None and self._publisher.takes(copy):
                copies.append(copy)
            else:
                left.append(delivery)
        dead = self._sent(self._publisher, copies)
        told = self._sent(self._publisher, [_event(delivery, verdict) for delivery, verdict in rejected])
        self._reply([_reply(d, v) for d, v in verdicts if d.properties.reply_to])
        for receipt in self._receipts(dead):
            if receipt is not Receipt.CONFIRMED:
                raise Unavailable(
                    f"{DEAD} did not take a rejected command ({receipt}); is scheduler_dead bound to it?"
                )
        self._receipts(told)
        return left

    def _sent(self, publisher: Publisher, messages: list[Message]) -> Batch:
        while True:
            self._until_unblocked()
            try:
                return publisher.send(messages)
            except BrokerUnavailable:
                # Refused over an alarm that came just now, perhaps between two halves of an answer: it passes too.
                if self._link.closed is not None:
                    raise

    def _until_unblocked(self) -> None:
        """An alarm of the broker passes: until then the commands stay where they are, unacknowledged.

        Given back, they would come again and again, until their delivery limit dead-letters them.
        """
        while self._link.blocked and self._link.closed is None:
            self._pause()

    def _receipts(self, batch: Batch) -> list[Receipt]:
        deadline = time.monotonic() + CONFIRM_TIMEOUT
        while not batch.done and time.monotonic() < deadline:
            batch.wait(0.5)
            if self._link.blocked:
                self._until_unblocked()
                deadline = time.monotonic() + CONFIRM_TIMEOUT
        return batch.wait(0)

    def _reply(self, replies: list[Message]) -> None:
        if not replies:
            return
        try:
            if self._replies is not None and not self._replies.usable:
                self._replies.forget()
                self._replies = None
            if self._replies is None:
                self._replies = Publisher(self._link, essential=False)
            sent = self._sent(self._replies, replies)
            if Receipt.UNKNOWN in self._receipts(sent):
                raise Unavailable(sent.lost)
        except Unavailable as error:
            if self._link.closed is not None:
                raise
            log.warning("replies lost", count=len(replies), problem=str(error),
                        do="check reply_to and the sidecar's write permission on the default exchange")


def _body(delivery: Delivery, verdict: Outcome | Rejected) -> ScheduleAccepted | ScheduleRejected:
    if isinstance(verdict, Rejected):
        errors = [{"field": each.field, "problem": each.problem} for each in verdict.problems]
        return ScheduleRejected.model_validate({"id": claimed_id(delivery.body), "errors": errors})
    return ScheduleAccepted(
        id=verdict.job.id, status=verdict.status, next_run_at=verdict.job.next_run_at
    )


def _event(delivery: Delivery, verdict: Rejected) -> Message:
    return _message(EVENTS, "rejected", delivery, verdict)


def _reply(delivery: Delivery, verdict: Outcome | Rejected) -> Message:
    return _message("", delivery.properties.reply_to, delivery, verdict)


def _message(exchange: str, key: str, delivery: Delivery, verdict: Outcome | Rejected) -> Message:
    body = _body(delivery, verdict)
    properties = pika.BasicProperties(
        content_type="application/json", delivery_mode=2, type=type(body).__name__, app_id="scheduler",
        correlation_id=delivery.properties.correlation_id, timestamp=int(time.time()),
    )
    # Not mandatory: nobody needs to listen, and a reply queue that is gone harms nobody.
    return Message(exchange, key, body.model_dump_json().encode(), properties, mandatory=False)


def _dead_letter(delivery: Delivery, verdict: Rejected) -> Message | None:
    """Copy the command as it came, with the reasons beside it; None if its properties could not be read."""
    original = delivery.properties
    if isinstance(original, UnreadableProperties):
        return None
    properties = pika.BasicProperties(delivery_mode=2, **{name: getattr(original, name) for name in _KEPT})
    # The delivery count is the queue's own mark, not the host's.
    headers = {name: value for name, value in (original.headers or {}).items() if name != "x-delivery-count"}
    properties.headers = headers | {
        "x-rejected-reason": str(verdict)[:4000],
        "x-rejected-at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    # These two cannot be kept as they are: an expiring dead letter would be lost after all, and the broker
    # refuses a user_id that is not ours.
    for name in ("expiration", "user_id"):
        if getattr(original, name) is not None:
            properties.headers[f"x-original-{name.replace('_', '-')}"] = getattr(original, name)
    return Message(DEAD, delivery.routing_key, delivery.body, properties)
