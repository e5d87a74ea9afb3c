"""Publish batches of events so that a slow queue of one route delays no other event.

Work of high and low priority has separate queues, which workers declare. While no queue is bound to such a
routing key (no worker has run yet, or all are older), the event is published again with its fallback key.
"""

import math
import time
from collections.abc import Sequence

from scheduler.rabbit.frames import DueMessage, Publishable, own_route
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.publisher import Confirms, Publisher, Receipt
from scheduler.rabbit.slow_routes import SlowRoutes

# A batch waits this long for its confirms before events that later confirms overtook are set aside.
STRAGGLER_SECONDS = 1.0
# If the other events of such a batch are still unconfirmed after this, the channel is stuck behind the slow ones.
STUCK_SECONDS = 1.0
RECHECK_SECONDS = 0.05
UNBOUND_SECONDS = 1.0  # for which the fallback is used at once after an event was returned


class EventConfirms:
    """Events in flight: most on the shared channel, events of slow routes on a separate connection."""

    def __init__(
        self, publisher: "EventPublisher", confirms: Confirms, separate: Sequence[tuple[int, Publishable]],
        fallbacks: Sequence[tuple[int, DueMessage]] = (),
    ) -> None:
        self._publisher = publisher
        self._confirms = confirms
        self._separate = separate
        self._fallbacks = fallbacks
        self._lost: str | None = None
        self._stuck_at = math.inf
        self._waiting_since = math.nan

    @property
    def lost(self) -> str:
        """The reason for the receipt UNKNOWN."""
        return self._lost or self._confirms.lost

    @property
    def has_overtaken(self) -> bool:
        """Whether events were set aside."""
        return self._stuck_at < math.inf

    def settled(self, timeout: float = math.inf) -> bool:
        """Return whether no event is worth waiting for any longer; wait for a short while at first."""
        if self._confirms.done:
            return True
        now = time.monotonic()
        if math.isnan(self._waiting_since):
            self._waiting_since = now
        left = self._waiting_since + STRAGGLER_SECONDS - now
        self._confirms.wait(max(0.0, min(left, timeout)))
        if self._confirms.done or timeout < left:
            return self._confirms.done
        if self._publisher.set_aside_slow(self._confirms):
            self._stuck_at = min(self._stuck_at, time.monotonic() + STUCK_SECONDS)
        return self._confirms.done or time.monotonic() >= self._stuck_at

    def wait(self, timeout: float) -> list[Receipt]:
        """Return the receipts in order, UNKNOWN for an event without one after this time."""
        deadline = time.monotonic() + timeout
        while not self.settled(deadline - time.monotonic()) and time.monotonic() < deadline:
            self._confirms.wait(min(RECHECK_SECONDS, max(0.0, deadline - time.monotonic())))
        receipts = self._confirms.wait(0.0)
        for index, message in self._separate:
            receipts.insert(index, self._publisher.slow_routes.receipt(message))
        returned = [(index, message) for index, message in self._fallbacks if receipts[index] is Receipt.RETURNED]
        if returned:
            self._fall_back(returned, receipts, deadline)
        return receipts

    def _fall_back(
        self, returned: Sequence[tuple[int, DueMessage]], receipts: list[Receipt], deadline: float
    ) -> None:
        """Publish returned events with their fallback keys, and replace their receipts."""
        again = [Receipt.UNKNOWN] * len(returned)
        try:
            confirms = self._publisher.fall_back([message for _, message in returned])
            again = confirms.wait(max(0.0, deadline - time.monotonic()))
            self._lost = confirms.lost if Receipt.UNKNOWN in again else None
        except RabbitUnavailable as error:
            self._lost = str(error)
        for (index, _), receipt in zip(returned, again, strict=True):
            receipts[index] = receipt


class EventPublisher:
    """Publishes on one channel, and the events of slow routes on a separate connection."""

    def __init__(self, link: Link, slow_routes: SlowRoutes) -> None:
        self._link = link
        self._publisher = Publisher(link)
        self._unbound: dict[str, float] = {}  # routing keys without a queue, and until when to skip them
        self.slow_routes = slow_routes

    def send(self, messages: Sequence[Publishable]) -> EventConfirms:
        """Send the messages, in order, and return at once."""
        fallbacks = [
            (index, message) for index, message in enumerate(messages)
            if isinstance(message, DueMessage) and message.fallback_key is not None and not self._skip(message)
        ]
        separate: list[tuple[int, Publishable]] = []
        if self.slow_routes.any:
            messages, separate = self._split(messages)
        return EventConfirms(self, self._publisher.send(messages), separate, fallbacks)

    def _skip(self, message: DueMessage) -> bool:
        """Use the fallback key of a message at once if its own was not bound a moment ago."""
        if not self._unbound or self._unbound.get(message.routing_key, 0.0) < time.monotonic():
            return False
        _use_fallback(message)
        return True

    def fall_back(self, messages: Sequence[DueMessage]) -> Confirms:
        """Send returned messages with their fallback keys. Raises RabbitUnavailable."""
        now = time.monotonic()
        self._unbound = {key: until for key, until in self._unbound.items() if until > now}
        for message in messages:
            self._unbound[message.routing_key] = now + UNBOUND_SECONDS
            _use_fallback(message)
        return self._publisher.send(messages)

    def _split(
        self, messages: Sequence[Publishable]
    ) -> tuple[list[Publishable], list[tuple[int, Publishable]]]:
        shared: list[Publishable] = []
        separate = []
        for index, message in enumerate(messages):
            route = own_route(message)
            if route is not None and self.slow_routes.contains(route):
                self.slow_routes.send(route, message, self._link)
                separate.append((index, message))
            else:
                shared.append(message)
        return shared, separate

    def set_aside_slow(self, confirms: Confirms) -> bool:
        """Set aside events that later confirms overtook, and publish their routes separately from now on."""
        routes = self._publisher.set_aside_slow(confirms)
        if routes:
            self.slow_routes.add(routes, self._link)
        return bool(routes)

    def renew(self) -> None:
        """Open a new channel unless messages are in flight."""
        self._publisher.renew()


def _use_fallback(message: DueMessage) -> None:
    assert message.fallback_key is not None  # noqa: S101 - the caller checked it
    message.routing_key, message.fallback_key = message.fallback_key, None
