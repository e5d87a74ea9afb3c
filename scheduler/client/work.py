"""A Runner's events: waiting, running and finished."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

import pika

from scheduler.client.results import AttemptReport, tracked
from scheduler.client.retries import attempts

REMEMBERED = 10_000  # finished events
Key = tuple[str | None, int]


class WorkState(Enum):
    """State of an event in a Runner."""

    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()  # its result may not be confirmed yet
    DROPPED = auto()  # requeued; no handler may start here


class StopReason(Enum):
    """Reason for stopping a running handler."""

    SUPERSEDED = auto()  # by the sidecar or a later attempt
    TIMED_OUT = auto()
    SHUTDOWN = auto()


_lock = threading.Lock()  # for the states of all works; held briefly


@dataclass(eq=False, slots=True)
class Work:
    """One attempt at one event, from its delivery to its acknowledgement.

    Only the thread that uses the broker accesses `deliveries`, `later`, `confirmed` and `succeeded`.
    """

    key: Key
    body: bytes
    properties: pika.BasicProperties
    attempt: AttemptReport | None  # of a tracked job
    deliveries: list[int] = field(default_factory=list)  # tags on the open channel
    later: list["Work"] = field(default_factory=list)  # further attempts at the same event: they wait for this one
    confirmed: bool = False  # the broker has its `running`
    succeeded: bool = False  # as a tracked attempt
    state: WorkState = WorkState.WAITING
    stop_reason: StopReason | None = None
    _stop: Callable[[StopReason], None] | None = None

    def begin(self) -> bool:
        """Mark it as running; return False if it was dropped."""
        with _lock:
            if self.state is not WorkState.WAITING:
                return False
            self.state = WorkState.RUNNING
            return True

    def drop(self) -> bool:
        """Mark it as dropped; return False if it has started."""
        with _lock:
            if self.state is not WorkState.WAITING:
                return False
            self.state = WorkState.DROPPED
            return True

    def on_stop(self, stop: Callable[[StopReason], None]) -> None:
        """Register `stop` for the end of the handler; call it now if a stop was already requested."""
        with _lock:
            self._stop = stop
            reason = self.stop_reason
        if reason is not None:
            stop(reason)

    @property
    def stoppable(self) -> bool:
        """Whether the handler can be stopped."""
        return self._stop is not None

    def stop(self, reason: StopReason) -> bool:
        """Stop the handler; return whether it can be stopped. Only the first reason counts."""
        with _lock:
            first = self.stop_reason is None
            self.stop_reason = self.stop_reason or reason
            stop = self._stop
        if stop is not None and first:
            stop(reason)
        return stop is not None


def identify(properties: pika.BasicProperties, body: bytes, worker: str) -> tuple[Key, AttemptReport | None]:
    """Return an event's key, the same for every delivery of one attempt, and the attempt if its job is tracked."""
    attempt = tracked(body, worker)
    if attempt is not None:
        return (str(attempt.event_id), attempt.attempt), attempt
    return (properties.message_id, attempts(properties)), None


class WorkSet:
    """All events of a Runner, also while it has no connection; used by one thread."""

    def __init__(self) -> None:
        self._by_event: dict[object, Work] = {}
        self._finished: OrderedDict[Key, None] = OrderedDict()

    def __iter__(self) -> Iterator[Work]:
        return iter(list(self._by_event.values()))

    def __len__(self) -> int:
        """Count the events, without later attempts at the same one."""
        return len(self._by_event)

    @property
    def waiting(self) -> int:
        """Number of events pending for lack of a free worker."""
        return sum(work.state is WorkState.WAITING for work in self._by_event.values())

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged events."""
        return sum(not work.deliveries for work in self._by_event.values())

    def current(self, key: Key) -> Work | None:
        """Return the work on the same event, for any attempt."""
        return None if key[0] is None else self._by_event.get(key[0])

    def add(self, work: Work) -> None:
        """Add the first work on an event."""
        self._by_event[work if work.key[0] is None else work.key[0]] = work

    def remove(self, work: Work) -> None:
        """Remove an event."""
        name: object = work if work.key[0] is None else work.key[0]
        if self._by_event.get(name) is work:
            del self._by_event[name]

    def finish(self, key: Key) -> None:
        """Record that an attempt needs no handler if it is redelivered."""
        if key[0] is None:
            return
        self._finished[key] = None
        self._finished.move_to_end(key)
        if len(self._finished) > REMEMBERED:
            self._finished.popitem(last=False)

    def finished(self, key: Key) -> bool:
        """Return whether an attempt has finished here."""
        return key in self._finished

    def lose_deliveries(self) -> None:
        """Drop all deliveries after the channel closes: the broker redelivers unacknowledged events."""
        for work in self:
            work.deliveries, work.later = [], []
            if work.drop():
                self.remove(work)
