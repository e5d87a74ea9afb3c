"""Publish the outcomes of commands: dead letters, ScheduleRejected and replies."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.domain.errors import Unavailable
from scheduler.domain.names import DEAD_EXCHANGE, DEAD_QUEUE, EVENTS_EXCHANGE
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.frames import AmqpMessage, Publishable, RawMessage, fits, json_message
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.message_forwarding import BODY_CUT, ORIGINAL_EXCHANGE, dead_letter
from scheduler.rabbit.publisher import Confirms, Publisher, Receipt
from scheduler.rabbit.reply_address import ReplyAddresses
from scheduler.rabbit.reply_sender import Reply, ReplySender

log = get_logger(__name__)
_refusals = ThrottledWarning(log, "rejected commands wait: the dead-letter queue does not accept them")

CONFIRM_TIMEOUT = 20.0
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 5.0
RETRIED = 100  # dead letters at a time
_REASON_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class CommandReply:
    """The outcome of a command: the reply's name and body, and the reason if the command is rejected."""

    delivery: Delivery
    kind: str
    body: bytes
    reason: str | None = None
    # The entry exchange of a delayed message: `reply_to` is for the message's receiver.
    entered: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Outcome of rejected commands whose copies were published."""

    accepted: list[Delivery]
    not_copied: list[Delivery]  # only the broker can move them
    refused: list[Delivery]  # to be retried


class OutcomePublisher:
    """Publishes the outcomes of a batch; only the confirms of dead letters can delay the batch.

    A dead letter that the broker refuses, for example because scheduler_dead is full, is kept and retried: its
    command stays unacknowledged, and the others continue.
    """

    def __init__(
        self, link: Link, pause: Callable[[], None], replies: ReplySender, addresses: ReplyAddresses | None = None,
        max_body: int | None = None,
    ) -> None:
        """Call `pause` repeatedly while the broker blocks publishers; cut bodies of dead letters to `max_body`."""
        self._link = link
        self._addresses = addresses or ReplyAddresses()
        self._pause = pause
        self._publisher = Publisher(link)
        self._replies = replies
        self._max_body = max_body
        self._refused: list[CommandReply] = []
        self._refused_since = self._retry_at = 0.0
        self._retry_seconds = RETRY_SECONDS

    def publish(self, outcomes: Sequence[CommandReply]) -> DeadLetters:
        """Publish, and wait for the broker's response to each dead letter. Raises Unavailable if there is none."""
        if not outcomes:
            return DeadLetters([], [], [])
        rejected = [outcome for outcome in outcomes if outcome.reason is not None]
        settle = self._send_copies(rejected)
        events = self._send([_message(EVENTS_EXCHANGE, "rejected", outcome) for outcome in rejected])
        self._reply(outcomes)
        published = settle()
        self._receipts(events)
        return published

    @property
    def refused_seconds(self) -> float:
        """How long refused dead letters have waited; 0 if there are none."""
        return time.monotonic() - self._refused_since if self._refused else 0.0

    def forget_refused(self) -> None:
        """Forget the refused dead letters: their commands return to the queue."""
        self._refused, self._retry_seconds = [], RETRY_SECONDS

    def retry_refused(self) -> DeadLetters | None:
        """Publish refused dead letters again; return None if it is not time yet."""
        if not self._refused or time.monotonic() < self._retry_at:
            return None
        since, retried, self._refused = self._refused_since, self._refused[:RETRIED], self._refused[RETRIED:]
        self._publisher.renew()  # RabbitMQ may not report to this channel that the queue has space again
        published = self._send_copies(retried)()
        self._refused_since = since
        if not published.refused:
            self._retry_seconds = RETRY_SECONDS
        return published

    def _refuse(self, outcomes: Sequence[CommandReply], receipt: Receipt) -> None:
        now = time.monotonic()
        self._refused_since = self._refused_since if self._refused else now
        self._refused += outcomes
        self._retry_at = now + self._retry_seconds
        self._retry_seconds = min(self._retry_seconds * 2, MAX_RETRY_SECONDS)
        _refusals.warning(
            queue=DEAD_QUEUE, count=len(self._refused), response=str(receipt),
            do=f"check that {DEAD_QUEUE} is bound to {DEAD_EXCHANGE}, and its length limit",
        )

    def _send_copies(self, rejected: Sequence[CommandReply]) -> Callable[[], DeadLetters]:
        """Publish copies of rejected commands; return a function that waits for the broker's responses."""
        copies: list[RawMessage] = []
        copied: list[CommandReply] = []
        not_copied: list[Delivery] = []
        for outcome in rejected:
            copy = _dead_letter(outcome, self._publisher.frame_max, self._max_body)
            if copy is None:
                not_copied.append(outcome.delivery)
            else:
                copies.append(copy)
                copied.append(outcome)
        confirms = self._send(copies)

        def settle() -> DeadLetters:
            accepted, refused = [], []
            for outcome, receipt in zip(copied, self._receipts(confirms), strict=True):
                match receipt:
                    case Receipt.CONFIRMED:
                        accepted.append(outcome.delivery)
                    case Receipt.UNSENDABLE:
                        not_copied.append(outcome.delivery)
                    case Receipt.REFUSED | Receipt.RETURNED:
                        refused.append(outcome)
                        response = receipt
                    case _:
                        raise Unavailable(f"RabbitMQ did not confirm a rejected command in {DEAD_EXCHANGE}")
            if refused:
                self._refuse(refused, response)
            return DeadLetters(accepted, not_copied, [outcome.delivery for outcome in refused])

        return settle

    def _reply(self, outcomes: Sequence[CommandReply]) -> None:
        replies = []
        for outcome in outcomes:
            properties = outcome.delivery.properties
            address, user_id = properties.reply_to, properties.user_id
            if address and outcome.entered is None and self._addresses.allow(address, user_id):
                client = self._addresses.client(address, user_id)
                replies.append(Reply(client, _message("", address, outcome)))
        if replies:
            self._wait_for_alarm()
            self._replies.send(replies)

    def _send(self, messages: Sequence[Publishable]) -> Confirms:
        while True:
            self._wait_for_alarm()
            try:
                return self._publisher.send(messages)
            except RabbitUnavailable:
                # An alarm that was raised just now, perhaps between dead letter and event, will be cleared too.
                if self._link.closed is not None:
                    raise

    def _wait_for_alarm(self) -> None:
        """Keep the commands unacknowledged while the broker has an alarm.

        Requeued, they would be redelivered repeatedly until their delivery limit dead-letters them.
        """
        while self._link.closed is None and (self._link.blocked or self._replies.blocked):
            self._pause()

    def _receipts(self, batch: Confirms) -> list[Receipt]:
        deadline = time.monotonic() + CONFIRM_TIMEOUT
        while not batch.done and time.monotonic() < deadline:
            batch.wait(0.5)
            if self._link.blocked:
                self._wait_for_alarm()
                deadline = time.monotonic() + CONFIRM_TIMEOUT
        return batch.wait(0)


def _message(exchange: str, key: str, outcome: CommandReply) -> AmqpMessage:
    correlation_id = outcome.delivery.properties.correlation_id
    return json_message(
        exchange, key, outcome.kind, outcome.body, correlation_id=correlation_id, timestamp=int(time.time())
    )


def _dead_letter(outcome: CommandReply, frame_max: int, max_body: int | None) -> RawMessage | None:
    """Copy the message with the reason in its headers; return None if its properties cannot be read.

    If a frame has no room for the reason, a command loses headers. A delayed message keeps them all: the broker
    moves it.
    """
    delivery, body = outcome.delivery, outcome.delivery.body
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    reason = (outcome.reason or "")[:_REASON_CHARACTERS].encode(errors="replace")[: frame_max // 4]
    headers: dict[str, str | int] = {"x-rejected-reason": reason.decode(errors="ignore"), "x-rejected-at": at}
    if outcome.entered is None:
        if max_body is not None and len(body) > max_body:
            headers[BODY_CUT] = len(body)
            body = body[:max_body]
        return dead_letter(delivery.routing_key, delivery.raw, body, headers, shrink_to=frame_max)
    headers[ORIGINAL_EXCHANGE] = outcome.entered
    copy = dead_letter(delivery.routing_key, delivery.raw, body, headers)
    return copy if copy is not None and fits(copy.properties, frame_max) else None
