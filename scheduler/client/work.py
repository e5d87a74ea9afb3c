"""The events that a Runner has: which wait, which run, and which have finished."""

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
    """How far an event has come."""

    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()  # its result may not be confirmed yet
    DROPPED = auto()  # the broker has it again, and no handler may start here


class StopReason(Enum):
    """Why a running handler is asked to end."""

    SUPERSEDED = auto()  # the sidecar has given up this attempt
    TIMED_OUT = auto()
    SHUTDOWN = auto()


_lock = threading.Lock()  # for the states of all works: it is held for an instant only


@dataclass(eq=False, slots=True)
class Work:
    """One attempt at one event, from its delivery to its acknowledgement.

    Only the thread that talks to the broker uses `deliveries`, `later`, `confirmed` and `succeeded`.
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
        """Keep it from starting; return False if it has started."""
        with _lock:
            if self.state is not WorkState.WAITING:
                return False
            self.state = WorkState.DROPPED
            return True

    def on_stop(self, stop: Callable[[StopReason], None]) -> None:
        """Have `stop` called when the handler must end: at once if that was asked for before."""
        with _lock:
            self._stop = stop
            reason = self.stop_reason
        if reason is not None:
            stop(reason)

    @property
    def stoppable(self) -> bool:
        """Whether the handler can be made to end."""
        return self._stop is not None

    def stop(self, reason: StopReason) -> bool:
        """Ask the handler to end; return whether it can be stopped. Only the first reason counts."""
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
        """How many wait for a free worker."""
        return sum(work.state is WorkState.WAITING for work in self._by_event.values())

    @property
    def acknowledged(self) -> int:
        """How many the broker does not count as delivered to us any more."""
        return sum(not work.deliveries for work in self._by_event.values())

    def current(self, key: Key) -> Work | None:
        """Return the work on the same event, whichever attempt it is."""
        return None if key[0] is None else self._by_event.get(key[0])

    def add(self, work: Work) -> None:
        """Take an event of which there is no other."""
        self._by_event[work if work.key[0] is None else work.key[0]] = work

    def remove(self, work: Work) -> None:
        """Forget an event that needs no further attention."""
        name: object = work if work.key[0] is None else work.key[0]
        if self._by_event.get(name) is work:
            del self._by_event[name]

    def finish(self, key: Key) -> None:
        """Remember that an attempt needs no handler any more, if it is delivered again."""
        if key[0] is None:
            return
        self._finished[key] = None
        self._finished.move_to_end(key)
        if len(self._finished) > REMEMBERED:
            self._finished.popitem(last=False)

    def finished(self, key: Key) -> bool:
        """Whether an attempt has finished here."""
        return key in self._finished

    def lose_deliveries(self) -> None:
        """Note that the channel is closed: the broker delivers again what was not acknowledged."""
        for work in self:
            work.deliveries, work.later = [], []
            if work.drop():
                self.remove(work)
