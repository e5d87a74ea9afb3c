"""Publishes batches of events so that a slow queue of one route delays no other event."""

import math
import time
from collections.abc import Sequence

from scheduler.rabbit.frames import Publishable, own_route
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Confirms, Publisher, Receipt
from scheduler.rabbit.slow_routes import SlowRoutes

# A batch waits this long for its confirms before events that later confirms overtook are set aside.
STRAGGLER_SECONDS = 1.0
# If the other events of such a batch are still unconfirmed after this, the channel is stuck behind the slow ones.
STUCK_SECONDS = 1.0
RECHECK_SECONDS = 0.05


class EventConfirms:
    """Events in flight: most on the shared channel, events of slow routes on a separate connection."""

    def __init__(
        self, publisher: "EventPublisher", confirms: Confirms, separate: Sequence[tuple[int, Publishable]]
    ) -> None:
        self._publisher = publisher
        self._confirms = confirms
        self._separate = separate
        self._stuck_at = math.inf
        self._waiting_since = math.nan

    @property
    def lost(self) -> str:
        """The reason for the receipt UNKNOWN."""
        return self._confirms.lost

    @property
    def straggled(self) -> bool:
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
        return receipts


class EventPublisher:
    """Publishes on one channel, and the events of slow routes on a separate connection."""

    def __init__(self, link: Link, slow_routes: SlowRoutes) -> None:
        self._link = link
        self._publisher = Publisher(link)
        self.slow_routes = slow_routes

    def send(self, messages: Sequence[Publishable]) -> EventConfirms:
        """Send the messages, in order, and return at once."""
        separate: list[tuple[int, Publishable]] = []
        if self.slow_routes.any:
            messages, separate = self._split(messages)
        return EventConfirms(self, self._publisher.send(messages), separate)

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
