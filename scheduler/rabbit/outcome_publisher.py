"""Publish the outcomes of commands: dead letters, ScheduleRejected and replies."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.domain.errors import Unavailable
from scheduler.domain.names import DEAD_EXCHANGE, EVENTS_EXCHANGE
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.frames import AmqpMessage, Publishable, RawMessage, fits, json_message
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.message_forwarding import BODY_CUT, ORIGINAL_EXCHANGE, dead_letter
from scheduler.rabbit.publisher import Confirms, Publisher, Receipt
from scheduler.rabbit.reply_address import ReplyAddresses
from scheduler.rabbit.reply_sender import Reply, ReplySender

CONFIRM_TIMEOUT = 20.0
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


class OutcomePublisher:
    """Publishes the outcomes of a batch; only dead letters can delay the batch."""

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

    def publish(self, outcomes: Sequence[CommandReply]) -> list[Delivery]:
        """Publish, and wait until every dead letter is confirmed in a queue. Raises Unavailable otherwise.

        Returns the rejected commands that cannot be copied: only the broker can move them.
        """
        if not outcomes:
            return []
        rejected = [outcome for outcome in outcomes if outcome.reason is not None]
        copies: list[RawMessage] = []
        copied: list[Delivery] = []
        not_copied: list[Delivery] = []
        for outcome in rejected:
            copy = _dead_letter(outcome, self._publisher.frame_max, self._max_body)
            if copy is None:
                not_copied.append(outcome.delivery)
            else:
                copies.append(copy)
                copied.append(outcome.delivery)
        dead_letters = self._send(copies)
        events = self._send([_message(EVENTS_EXCHANGE, "rejected", outcome) for outcome in rejected])
        self._reply(outcomes)
        for delivery, receipt in zip(copied, self._receipts(dead_letters), strict=True):
            if receipt is Receipt.UNSENDABLE:
                not_copied.append(delivery)
            elif receipt is not Receipt.CONFIRMED:
                raise Unavailable(
                    f"{DEAD_EXCHANGE} did not take a rejected command ({receipt}); is scheduler_dead bound to it?"
                )
        self._receipts(events)
        return not_copied

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
