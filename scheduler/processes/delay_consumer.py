"""Store the messages of the entry exchanges for delayed messages."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from scheduler.commands import batch_telemetry
from scheduler.commands.apply_delayed import parse_delayed_delivery, store_delayed
from scheduler.commands.command_replies import reply_to
from scheduler.commands.decide_commands import MessageOutcome
from scheduler.domain.errors import Rejected
from scheduler.domain.names import DELAY_EXCHANGE, DELAY_QUEUE, DELAYED_EXCHANGE, delay_entry, delay_queue
from scheduler.processes.consumer import Consumer, MessageKind
from scheduler.rabbit.delivery_parser import Delivery, decoded, undecoded
from scheduler.rabbit.link import Link
from scheduler.rabbit.outcome_publisher import CommandReply
from scheduler.settings import Settings

DELAYED = MessageKind(DELAY_QUEUE, parse_delayed_delivery, store_delayed, batch_telemetry.count_delayed, undecoded)


class DelayConsumer(Consumer):
    """Consumes the delayed messages of one entry exchange, on a separate connection.

    Batches are stored one after the other, so that messages for the same instant keep their order.
    """

    kind = DELAYED
    sessions = 1
    entry, exchange = DELAY_EXCHANGE, DELAYED_EXCHANGE

    @classmethod
    def each(cls, settings: Settings) -> list[type[Consumer]]:
        """Return a consumer class for each entry exchange."""
        additional = [
            type(f"{cls.__name__} {name}", (cls,), {
                "kind": replace(DELAYED, queue=delay_queue(name)), "entry": delay_entry(name), "exchange": name,
            }) for name, _ in settings.delay_exchanges
        ]
        return [cls, *additional]

    def _reader(self, link: Link) -> Callable[[Delivery], Any]:
        return partial(self.kind.read, exchange=self.exchange, frame_max=link.frame_max)

    def _ids(self, deliveries: Sequence[Delivery]) -> set[str]:  # noqa: ARG002 - overrides
        return set()

    def _replies(self, batch: Sequence[Delivery], outcomes: Sequence[MessageOutcome]) -> list[CommandReply]:
        """Reply only to rejected messages: `reply_to` is for the message's receiver."""
        replies = []
        for delivery, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Rejected):
                delivery.properties = decoded(delivery.raw)
                message = reply_to(outcome, _message_id(delivery.properties.message_id))
                body = message.model_dump_json().encode()
                replies.append(CommandReply(delivery, type(message).__name__, body, str(outcome), self.entry))
        return replies


def _message_id(message_id: Any) -> str | None:
    """Return the message_id if it is valid UTF-8; otherwise pika leaves it as bytes."""
    return message_id if isinstance(message_id, str) else None


