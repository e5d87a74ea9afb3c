"""What a host hears about its commands: replies, rejections, and dead letters with their reasons."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.domain.errors import Unavailable
from scheduler.domain.names import ANSWERS_QUEUE_PREFIX, DEAD_EXCHANGE, EVENTS_EXCHANGE
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.frames import AmqpMessage, Publishable, RawMessage, fits, json_message
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.message_forwarding import ORIGINAL_EXCHANGE, dead_letter
from scheduler.rabbit.publisher import Confirms, Publisher, Receipt

log = get_logger(__name__)
_withheld = ThrottledWarning(log, "reply not sent: its queue is not allowed")

CONFIRM_TIMEOUT = 20.0
_REASON_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class CommandReply:
    """What to tell about a command: the message's name and body, and the reason if the command is rejected."""

    delivery: Delivery
    kind: str
    body: bytes
    reason: str | None = None
    # Where a delayed message came in: then it is no command, and its `reply_to` is meant for others.
    entered: str | None = None


class ReplyQueues:
    """The queues that replies may be sent to (SCHEDULER_REPLY_QUEUES).

    A reply is published with the sidecar's own rights, so a host could have it write to queues that are not the
    host's. RabbitMQ's direct reply-to, and the queues where our workers wait for replies, are always allowed. If
    tenants are strangers to each other, a user's replies go to that user's queues (`USER:…`), to queues that the
    broker named, and to those of the setting. Otherwise any queue is allowed if the setting names none.
    """

    def __init__(self, patterns: Sequence[str] = (), *, strangers: bool = False) -> None:
        always = ("amq.rabbitmq.reply-to.*", f"{ANSWERS_QUEUE_PREFIX}*", *(("amq.gen-*",) if strangers else ()))
        texts = [".*".join(map(re.escape, each.split("*"))) for each in (*patterns, *always)]
        self._allowed = re.compile("|".join(texts)).fullmatch if patterns or strangers else None
        self._strangers = strangers

    def allow(self, name: str | bytes, user_id: str | None) -> bool:
        """Tell whether a reply to this broker user may be sent to the queue; log it if not."""
        if self._allowed is None:
            return True
        if isinstance(name, str):
            own = self._strangers and user_id and name.startswith(f"{user_id}:")
            if own or self._allowed(name):
                return True
        _withheld.warning(queue=str(name)[:100], do="add it to SCHEDULER_REPLY_QUEUES if replies belong there")
        return False


class ReplySender:
    """Publishes the answers to a batch of commands; only dead letters can hold the batch up."""

    def __init__(self, link: Link, pause: Callable[[], None], queues: ReplyQueues | None = None) -> None:
        """Take what to do, again and again, while the broker blocks publishers, and where replies may go."""
        self._link = link
        self._queues = queues or ReplyQueues()
        self._pause = pause
        self._publisher = Publisher(link)
        # Replies go where a host says. Should the broker close the channel over one, nothing else suffers.
        self._replies: Publisher | None = None

    def give(self, answers: Sequence[CommandReply]) -> list[Delivery]:
        """Return once every dead letter is confirmed and in a queue; raise Unavailable otherwise.

        Returned are the rejected commands of which no copy can be made: only the broker can move them.
        """
        if not answers:
            return []
        rejected = [answer for answer in answers if answer.reason is not None]
        copies: list[RawMessage] = []
        copied: list[Delivery] = []
        left: list[Delivery] = []
        for answer in rejected:
            copy = _dead_letter(answer, self._publisher.frame_max)
            if copy is None:
                left.append(answer.delivery)
            else:
                copies.append(copy)
                copied.append(answer.delivery)
        dead = self._sent(self._publisher, copies)
        told = self._sent(self._publisher, [_event(answer) for answer in rejected])
        self._reply([
            _reply(answer) for answer in answers
            if answer.entered is None and answer.delivery.properties.reply_to
            and self._queues.allow(answer.delivery.properties.reply_to, answer.delivery.properties.user_id)
        ])
        for delivery, receipt in zip(copied, self._receipts(dead), strict=True):
            if receipt is Receipt.UNSENDABLE:
                left.append(delivery)
            elif receipt is not Receipt.CONFIRMED:
                raise Unavailable(
                    f"{DEAD_EXCHANGE} did not take a rejected command ({receipt}); is scheduler_dead bound to it?"
                )
        self._receipts(told)
        return left

    def _sent(self, publisher: Publisher, messages: Sequence[Publishable]) -> Confirms:
        while True:
            self._until_unblocked()
            try:
                return publisher.send(messages)
            except RabbitUnavailable:
                # Refused over an alarm that came just now, perhaps between two halves of an answer: it passes too.
                if self._link.closed is not None:
                    raise

    def _until_unblocked(self) -> None:
        """An alarm of the broker passes: until then the commands stay where they are, unacknowledged.

        Given back, they would come again and again, until their delivery limit dead-letters them.
        """
        while self._link.blocked and self._link.closed is None:
            self._pause()

    def _receipts(self, batch: Confirms) -> list[Receipt]:
        deadline = time.monotonic() + CONFIRM_TIMEOUT
        while not batch.done and time.monotonic() < deadline:
            batch.wait(0.5)
            if self._link.blocked:
                self._until_unblocked()
                deadline = time.monotonic() + CONFIRM_TIMEOUT
        return batch.wait(0)

    def _reply(self, replies: list[AmqpMessage]) -> None:
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


def _event(answer: CommandReply) -> AmqpMessage:
    return _message(EVENTS_EXCHANGE, "rejected", answer)


def _reply(answer: CommandReply) -> AmqpMessage:
    return _message("", answer.delivery.properties.reply_to, answer)


def _message(exchange: str, key: str, answer: CommandReply) -> AmqpMessage:
    correlation_id = answer.delivery.properties.correlation_id
    return json_message(
        exchange, key, answer.kind, answer.body, correlation_id=correlation_id, timestamp=int(time.time())
    )


def _dead_letter(answer: CommandReply, frame_max: int) -> RawMessage | None:
    """Copy the message as it came, with the reasons beside it; None if its properties could not be read.

    If a frame has no room for the reasons, a command loses headers. A delayed message keeps them all: the broker
    moves it.
    """
    delivery = answer.delivery
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    reason = (answer.reason or "")[:_REASON_CHARACTERS].encode(errors="replace")[: frame_max // 4]
    headers = {"x-rejected-reason": reason.decode(errors="ignore"), "x-rejected-at": at}
    if answer.entered is None:
        return dead_letter(delivery.routing_key, delivery.raw, delivery.body, headers, shrink_to=frame_max)
    headers[ORIGINAL_EXCHANGE] = answer.entered
    copy = dead_letter(delivery.routing_key, delivery.raw, delivery.body, headers)
    return copy if copy is not None and fits(copy.properties, frame_max) else None
