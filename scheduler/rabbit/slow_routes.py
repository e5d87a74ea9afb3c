"""Send the events of slow routes over a separate connection, so that they delay no other event.

A route is slow if the broker confirmed later events but not the route's own: a queue bound to it does not keep up.
On the shared channel such events would delay the batches that they are part of, and in the end block the channel.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from scheduler.domain.errors import Unavailable
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.frames import Publishable
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Confirms, Publisher, Receipt
from scheduler.rabbit.route_window import RouteWindow

log = get_logger(__name__)

# How long a route stays separate after its last late confirm. Doubled each time that the route becomes slow again.
SEPARATE_SECONDS, MAX_SEPARATE_SECONDS = 60.0, 3600.0
MAX_ROUTES = 1000
MAX_SENT, MAX_SENT_PER_ROUTE = 100, 50  # whose receipts were not taken
LATE_SECONDS = 0.5  # less than the shortest retry delay of an event
# An event that is unconfirmed for this long is resent on a new connection.
CONFIRM_TIMEOUT = 60.0
RECONNECT_SECONDS = 5.0
# These fields differ between two emissions of the same event.
_TIMES = re.compile(rb'"(?:emitted_at|deadline)":"[^"]*"')
_slow = ThrottledWarning(log, "slow route: its events use a separate connection")


class _Separation(NamedTuple):
    until: float
    seconds: float
    window: RouteWindow


class _SentEvent(NamedTuple):
    route: str
    at: float
    confirms: Confirms


class SlowRoutes:
    """The slow routes of a process, and the events sent for them. Any thread may use it, and no method waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._separations: dict[str, _Separation] = {}
        self._forget_at = 0.0
        self._sent: dict[int, _SentEvent] = {}  # by fingerprint, oldest first
        self._link: Link | None = None
        self._publisher: Publisher | None = None
        self._connecting: threading.Thread | None = None
        self._connect_at = 0.0

    @property
    def any(self) -> bool:
        """Whether there are slow routes to check for."""
        if self._separations and self._clock() > self._forget_at:
            self._separations.clear()
        return bool(self._separations)

    def add(self, routes: Iterable[str], link: Link) -> None:
        """Send the events of these routes separately from now on, over another connection like `link`."""
        with self._lock:
            for route in routes:
                before = self._separations.get(route) or _Separation(math.inf, SEPARATE_SECONDS, RouteWindow())
                seconds = before.seconds
                if before.until <= self._clock():
                    seconds = min(seconds * 2, MAX_SEPARATE_SECONDS)
                self._separate(route, seconds, before.window)
                _slow.warning(route=route, seconds=round(seconds),
                              do="find the slow queue bound to schedule.events for due.ROUTE; repair or delete it")
            while len(self._separations) > MAX_ROUTES:
                del self._separations[next(iter(self._separations))]
            self._connect(link)

    def _separate(self, route: str, seconds: float, window: RouteWindow) -> None:
        self._separations.pop(route, None)  # newest last
        self._separations[route] = _Separation(self._clock() + seconds, seconds, window)
        self._forget_at = self._clock() + 2 * MAX_SEPARATE_SECONDS

    def contains(self, route: str | None) -> bool:
        """Return whether the events of a route are sent separately."""
        separation = None if route is None else self._separations.get(route)
        return separation is not None and separation.until > self._clock()

    def send(self, route: str, message: Publishable, link: Link) -> None:
        """Send an event unless it is unconfirmed already, if there is a connection and room."""
        with self._lock:
            self._expire()
            fingerprint = _fingerprint(message)
            if fingerprint in self._sent or len(self._sent) >= MAX_SENT:
                return
            separation = self._separations.get(route)
            own = [sent.confirms.done for sent in self._sent.values() if sent.route == route]
            room = separation is not None and separation.window.has_room(own.count(False), self._clock())
            if separation is None or not room or len(own) >= MAX_SENT_PER_ROUTE:
                return
            if self._publisher is None or self._link is None or self._link.closed is not None:
                self._connect(link)
                return
            confirmed = partial(self._confirmed, separation.window, self._clock())
            with suppress(Unavailable):
                confirms = self._publisher.send([message], confirmed)
                self._sent[fingerprint] = _SentEvent(route, self._clock(), confirms)

    def _confirmed(self, window: RouteWindow, sent_at: float, _: list[Receipt]) -> None:
        """Adapt the route's window; called on the I/O thread."""
        with self._lock:
            window.confirmed(self._clock() - sent_at, self._clock())

    def receipt(self, message: Publishable) -> Receipt:
        """Return the receipt of an event: SLOW while it is unconfirmed or was not sent."""
        with self._lock:
            fingerprint = _fingerprint(message)
            sent = self._sent.get(fingerprint)
            if sent is None:
                return Receipt.SLOW
            if sent.confirms.done:
                del self._sent[fingerprint]
                [receipt] = sent.confirms.wait(0.0)
                return Receipt.SLOW if receipt is Receipt.UNKNOWN else receipt
            separation = self._separations.get(sent.route)
            if self._clock() - sent.at > LATE_SECONDS and separation is not None:
                self._separate(sent.route, separation.seconds, separation.window)
            return Receipt.SLOW

    def close(self) -> None:
        """Close the connection in the background; events without a receipt are resent."""
        with self._lock:
            link, self._link, self._publisher = self._link, None, None
            self._sent.clear()
        if link is not None:
            threading.Thread(target=link.close, name="slow routes close", daemon=True).start()

    def _expire(self) -> None:
        """Forget confirmed events whose receipt no caller took; close a connection that does not confirm."""
        while self._sent:
            fingerprint, sent = next(iter(self._sent.items()))
            if self._clock() - sent.at <= CONFIRM_TIMEOUT:
                return
            if sent.confirms.done:
                del self._sent[fingerprint]
            else:
                self.close()

    def _connect(self, link: Link) -> None:
        connected = self._link is not None and self._link.closed is None
        connecting = self._connecting is not None and self._connecting.is_alive()
        if connected or connecting or self._clock() < self._connect_at:
            return
        self._connect_at = self._clock() + RECONNECT_SECONDS
        self._connecting = threading.Thread(target=self._open, args=(link,), name="slow routes open", daemon=True)
        self._connecting.start()

    def _open(self, link: Link) -> None:
        try:
            separate = link.open_another("producer slow routes")
            publisher = Publisher(separate)
        except Unavailable as error:
            log.warning("no separate connection for slow routes", problem=str(error),
                        do="check the broker's connection limit; the events are retried")
            return
        with self._lock:
            self._link, self._publisher = separate, publisher


def _fingerprint(message: Publishable) -> int:
    return hash((message.routing_key, message.key, _TIMES.sub(b"", message.body)))
