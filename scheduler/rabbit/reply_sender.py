"""Send replies on a separate connection.

Clients choose the address of a reply. On a separate connection, replies that a queue does not confirm, or over
which the broker closes the connection, neither delay commands nor cause their redelivery.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from scheduler.domain.errors import Unavailable
from scheduler.ops import metrics
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.frames import AmqpMessage
from scheduler.rabbit.link import Link
from scheduler.rabbit.message_isolation import MessageIsolation
from scheduler.rabbit.publisher import Publisher, Receipt

log = get_logger(__name__)

WAIT_SECONDS = 0.25  # maximum wait for confirms before commands are acknowledged
SLOW_SECONDS = 600.0  # no waiting for a client for this long after its queue was slow
SUSPENDED_SECONDS = 60.0  # replies to a client are dropped for this long after one closed the connection twice
STUCK_SECONDS = 15.0  # age of an unconfirmed reply from which the client may queue only WINDOW more
STALL_SECONDS = 30.0  # an unconfirmed reply is dropped after this
MAX_LOSSES = 2
WINDOW = 200  # unconfirmed replies to one client; more would exhaust a queue's credit and block the connection
MAX_WAITING = 10_000  # replies to one client
MAX_REPLIES = 20_000
_MAX_CLIENTS = 10_000  # remembered as slow or suspended
_RECONNECT_SECONDS, _MAX_RECONNECT_SECONDS = 0.1, 5.0

_dropped = ThrottledWarning(log, "replies dropped")


class _Wait:
    """Counts the replies that a caller waits for."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = 0


@dataclass(slots=True)
class Reply:
    """A reply, and the client that it is for."""

    client: str
    message: AmqpMessage
    losses: int = 0  # connections that the broker closed while it was unconfirmed
    wait: _Wait | None = None


@dataclass(slots=True, eq=False)
class _SentReplies:
    """Replies to one client that were sent together."""

    client: str
    replies: list[Reply]
    sent_at: float = field(default_factory=time.monotonic)


class ReplySender:
    """Sends replies from its own thread and reconnects automatically.

    Replies that are unconfirmed when the connection is lost are resent. If the broker closed it, one of them
    may be the cause. Then they are sent one at a time, and the one over which the broker closes the next
    connection is dropped.
    """

    def __init__(self, connect: Callable[[], Link]) -> None:
        """Take the function that opens a connection; it is called when there is a reply to send."""
        self._connect = connect
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._publisher: Publisher | None = None
        self._isolation = MessageIsolation()
        self._waiting: dict[str, deque[Reply]] = {}  # by client; the next client to serve is first
        self._retries: deque[Reply] = deque()
        self._flights: dict[_SentReplies, None] = {}  # oldest first
        self._unconfirmed: Counter[str] = Counter()  # by client
        self._count = 0  # replies that are neither confirmed nor dropped
        self._slow: dict[str, float] = {}  # clients, until when
        self._suspended: dict[str, float] = {}

    @property
    def blocked(self) -> bool:
        """Whether the broker blocks publishers because of its memory or disk alarm."""
        link = self._link
        return link is not None and link.blocked and link.closed is None

    def send(self, replies: Sequence[Reply]) -> None:
        """Send replies and wait for their confirms, but not longer than WAIT_SECONDS and not for slow clients."""
        if not replies:
            return
        deadline, wait = time.monotonic() + WAIT_SECONDS, _Wait()
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="replies", daemon=True)
                self._thread.start()
            stuck = self._stuck_clients()
            for reply in replies:
                self._add(reply, wait, WINDOW if reply.client in stuck else MAX_WAITING)
            self._changed.notify_all()
            while wait.pending and (rest := deadline - time.monotonic()) > 0:
                self._changed.wait(rest)
            if wait.pending:
                self._mark_slow({flight.client for flight in self._flights if flight.sent_at < deadline})

    def close(self, seconds: float = 1.0) -> None:
        """Wait for replies that are not confirmed yet, then close the connection."""
        with self._changed:
            self._changed.wait_for(lambda: not self._count, seconds)
            self._closed.set()
            self._changed.notify_all()
            link = self._link
        if link is not None:
            with suppress(Unavailable):
                link.close()

    def _add(self, reply: Reply, wait: _Wait, limit: int) -> None:
        client = reply.client
        slow = _is_listed(self._slow, client)
        waiting = self._waiting.setdefault(client, deque())
        if _is_listed(self._suspended, client):
            _drop([reply], "suspended", do="no action; the first log line has the reason")
        elif len(waiting) >= limit or self._count >= MAX_REPLIES:
            _drop([reply], "unconfirmed", do="check that the queue in reply_to is not full")
        else:
            self._count += 1
            waiting.append(reply)
            if not slow:
                reply.wait = wait
                wait.pending += 1
        if not waiting:
            del self._waiting[client]

    def _mark_slow(self, clients: Iterable[str]) -> None:
        if not self.blocked:
            _list(self._slow, clients, SLOW_SECONDS)

    def _finish(self, replies: Iterable[Reply]) -> None:
        """Forget replies that were confirmed or dropped."""
        for reply in replies:
            self._count -= 1
            if reply.wait is not None:
                reply.wait.pending -= 1
        self._changed.notify_all()

    def _run(self) -> None:
        delay = _RECONNECT_SECONDS
        while not self._closed.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._closed.is_set() or self._can_send(), WAIT_SECONDS)
                flight = self._next_replies()
            self._abandon_stalled()
            if flight is None:
                continue
            try:
                self._send(flight)
                delay = _RECONNECT_SECONDS
            except Unavailable as error:
                log.debug("replies wait for RabbitMQ", problem=str(error))
                self._put_back(flight)
                self._closed.wait(delay)
                delay = min(delay * 2, _MAX_RECONNECT_SECONDS)

    def _can_send(self) -> bool:
        if self._retries:
            # Nothing else is in flight, except replies whose confirms take long.
            return all(time.monotonic() - flight.sent_at > WAIT_SECONDS for flight in self._flights)
        return any(self._unconfirmed[client] < WINDOW for client in self._waiting)

    def _next_replies(self) -> _SentReplies | None:
        """Return the replies to send next: one that was lost, alone, or else those to the next client."""
        if not self._can_send():
            return None
        if self._retries:
            self._mark_slow(flight.client for flight in self._flights)
            reply = self._retries.popleft()
            flight = _SentReplies(reply.client, [reply])
        else:
            client = next(client for client in self._waiting if self._unconfirmed[client] < WINDOW)
            waiting = self._waiting.pop(client)
            room = WINDOW - self._unconfirmed[client]
            flight = _SentReplies(client, [waiting.popleft() for _ in range(min(room, len(waiting)))])
            if waiting:
                self._waiting[client] = waiting
        self._flights[flight] = None
        self._unconfirmed[flight.client] += len(flight.replies)
        return flight

    def _send(self, flight: _SentReplies) -> None:
        if self._link is None or self._link.closed is not None:
            self._link, self._publisher = self._connect(), None
        if self._publisher is None or not self._publisher.usable:
            if self._publisher is not None:
                self._publisher.forget()
            self._isolation = MessageIsolation()  # what one connection learned must not slow the next one down
            self._publisher = Publisher(self._link, essential=False, learned=self._isolation)
        self._publisher.send(
            [reply.message for reply in flight.replies], lambda receipts: self._settle(flight, receipts)
        )

    def _settle(self, flight: _SentReplies, receipts: Sequence[Receipt]) -> None:
        """Take the broker's receipts; called on the I/O thread."""
        with self._changed:
            if not self._remove_sent(flight):
                return
            lost = []
            for reply, receipt in zip(flight.replies, receipts, strict=True):
                if receipt is Receipt.UNKNOWN:
                    lost.append(reply)
                else:
                    self._finish([reply])
            if lost and self._isolation.closed_by_message:
                self._retry(flight.client, lost)
            else:
                self._wait_again(lost)
            self._changed.notify_all()

    def _remove_sent(self, flight: _SentReplies) -> bool:
        """Remove a flight; return False if it was removed before."""
        if flight not in self._flights:
            return False
        del self._flights[flight]
        self._unconfirmed[flight.client] -= len(flight.replies)
        if not self._unconfirmed[flight.client]:
            del self._unconfirmed[flight.client]
        return True

    def _put_back(self, flight: _SentReplies) -> None:
        with self._changed:
            if self._remove_sent(flight):
                self._wait_again(flight.replies)

    def _wait_again(self, replies: Sequence[Reply]) -> None:
        """Requeue, at the front, replies that were not sent or are not suspected of closing a connection."""
        for reply in reversed(replies):
            if reply.losses:
                self._retries.appendleft(reply)
            else:
                self._waiting.setdefault(reply.client, deque()).appendleft(reply)

    def _retry(self, client: str, lost: Sequence[Reply]) -> None:
        """Requeue replies one of which may have made the broker close the connection."""
        slow = _is_listed(self._slow, client)
        for reply in lost:
            reply.losses += 1
        again = [reply for reply in lost if reply.losses < MAX_LOSSES]
        if slow:  # a retry alone would make the other clients wait
            self._waiting.setdefault(client, deque()).extend(again)
        else:
            self._retries.extend(again)
        if dropped := lost[len(again):]:
            _list(self._suspended, [client], SUSPENDED_SECONDS)
            dropped = [*dropped, *self._waiting.pop(client, ())]
            _drop(dropped, "lost", problem=self._isolation.closed_by_message,
                  do="check reply_to and the sidecar's write permission on the default exchange")
            self._finish(dropped)

    def _stuck_clients(self) -> set[str]:
        """Return the clients whose queue has not confirmed for STUCK_SECONDS."""
        since = time.monotonic() - min(STUCK_SECONDS, STALL_SECONDS)
        return set() if self.blocked else {flight.client for flight in self._flights if flight.sent_at <= since}

    def _abandon_stalled(self) -> None:
        """Drop replies that stay unconfirmed, and replace the connection, which they may block."""
        with self._changed:
            for client in self._stuck_clients():
                excess = [self._waiting[client].pop() for _ in range(len(self._waiting.get(client, ())) - WINDOW)]
                if excess:
                    _drop(excess, "unconfirmed", do="check that the queue in reply_to is not full")
                    self._finish(excess)
            oldest = next(iter(self._flights), None)
            if oldest is None or time.monotonic() - oldest.sent_at < STALL_SECONDS or self.blocked:
                return
            for flight in list(self._flights):
                if time.monotonic() - flight.sent_at >= STALL_SECONDS and self._remove_sent(flight):
                    _drop(flight.replies, "unconfirmed", do="check that the queue in reply_to is not full")
                    self._finish(flight.replies)
            link = self._link
        if link is not None:
            with suppress(Unavailable):
                link.close()


def _drop(replies: Sequence[Reply], reason: str, **fields: str | None) -> None:
    metrics.replies_dropped.labels(reason).inc(len(replies))
    message = replies[0].message
    _dropped.warning(count=len(replies), reason=reason, reply_to=str(message.routing_key)[:100], **fields)


def _list(clients: dict[str, float], names: Iterable[str], seconds: float) -> None:
    """List clients for some time, the newest last."""
    until = time.monotonic() + seconds
    for name in names:
        clients.pop(name, None)
        clients[name] = until
    while len(clients) > _MAX_CLIENTS:
        del clients[next(iter(clients))]


def _is_listed(clients: dict[str, float], name: str) -> bool:
    return clients.get(name, 0.0) > time.monotonic()
