"""Start commands so that none runs twice or is lost.

The broker confirms `running`, the sidecar records it, the worker acknowledges the delivery and starts the program,
in this order. If the worker dies in between, either the message is redelivered or the run's heartbeat ends.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from uuid import uuid4

from scheduler.domain.errors import Unavailable
from scheduler.domain.messages import ScheduleResult
from scheduler.domain.offer_tenants import ALL_TENANTS
from scheduler.domain.targets.pools import DEFAULT_POOL
from scheduler.ops.logs import get_logger
from scheduler.rabbit.command_queue import CommandQueue
from scheduler.rabbit.frames import command_message
from scheduler.rabbit.publisher import Publisher, Receipt
from scheduler.workers.attempt import WorkerAttempt
from scheduler.workers.class_queues import EVERY
from scheduler.workers.command.commands_file import OfferedCommand
from scheduler.workers.command.fairness import WINDOW, TenantQueues
from scheduler.workers.command.process import CommandOrder

log = get_logger(__name__)

HEARTBEAT = 25.0  # seconds; so a dead worker is detected within 30 s
REPLY_SECONDS = 5.0  # after which the command starts without the sidecar's reply
_REQUEUE_SECONDS = 1.0
Key = tuple[str, int]
Post = Callable[..., None]


@dataclass(slots=True, eq=False)
class CommandSlots:
    """A command of the file and its used slots."""

    command: OfferedCommand
    pools: tuple[str, ...] = (DEFAULT_POOL,)
    queues: tuple[CommandQueue, ...] = ()  # of each pool and class, while there is a connection
    consuming: bool = False
    fetching: bool = False  # taking events one at a time, in the order of their class
    fetches: int = 0
    starting: int = 0  # slots of pending starts
    used: int = 0
    tenant_queues: "TenantQueues[PendingStart] | None" = None  # only if several tenants share the command

    def __post_init__(self) -> None:
        if self.several_tenants:
            self.tenant_queues = TenantQueues(self.command.concurrency)

    @property
    def several_tenants(self) -> bool:
        return len(self.command.tenants) > 1 or ALL_TENANTS in self.command.tenants

    @property
    def full(self) -> bool:
        return self.used + self.starting >= self.command.concurrency

    @property
    def window(self) -> int:
        """The deliveries that are prefetched from each queue."""
        return WINDOW if self.several_tenants else 1

    def attach(self, queues: tuple[CommandQueue, ...]) -> None:
        """Use these queues from now on; none after a connection is lost."""
        self.queues, self.consuming, self.fetching = queues, False, False

    def pause(self) -> None:
        """Stop consuming until a slot is free, so that other workers get the events."""
        if self.consuming:
            self.consuming = False
            for queue in self.queues:
                queue.pause()

    def open(self) -> None:
        """Consume the queues."""
        if not self.consuming:
            self.consuming = True
            for queue in self.queues:
                queue.open()

    def fetch_order(self) -> list[CommandQueue]:
        """Return the queues in the order of their class, every tenth time from the lowest; pools take turns."""
        self.fetches += 1
        turn = self.fetches % len(self.queues)
        lowest_first = self.fetches % EVERY == 0
        queues = (*self.queues[turn:], *self.queues[:turn])
        return sorted(queues, key=lambda queue: -queue.rank if lowest_first else queue.rank)


class StartStep(Enum):
    """The last completed step of a start."""

    ANNOUNCED = auto()
    CONFIRMED = auto()
    ACKNOWLEDGED = auto()


@dataclass(slots=True, eq=False)
class PendingStart:
    """An attempt that is about to start."""

    offer: CommandSlots
    attempt: WorkerAttempt
    order: CommandOrder
    queue: CommandQueue
    tag: int
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    step: StartStep = StartStep.ANNOUNCED
    ticket: int | None = None  # of its slot, if several tenants share its command
    reserved: bool = False  # whether it has a slot of another command, until it is acknowledged
    reply_by: float = field(default_factory=lambda: time.monotonic() + REPLY_SECONDS)


class PendingStarts:
    """The pending starts on one connection. Not thread-safe; `post` passes events to the thread that uses it."""

    def __init__(self, post: Post, start: Callable[[PendingStart], None], worker: str) -> None:
        self._post = post
        self._start = start
        self._worker = worker
        self._publisher: Publisher | None = None
        self._reply_to = ""
        self._user_id: str | None = None
        self._starts: dict[Key, PendingStart] = {}

    def attach(self, publisher: Publisher, reply_to: str, user_id: str | None) -> None:
        """Use this connection from now on, with the `user_id` that the broker verifies, if any."""
        self._publisher, self._reply_to, self._user_id = publisher, reply_to, user_id

    def detach(self) -> None:
        """Forget all pending starts: their messages are redelivered, or their heartbeat ends."""
        self._publisher = None
        for start in self._starts.values():
            start.offer.used -= start.step is StartStep.ACKNOWLEDGED
            release_slot(start)
        self._starts.clear()

    def __contains__(self, key: Key) -> bool:
        return key in self._starts

    def __len__(self) -> int:
        return len(self._starts)

    def announce(self, start: PendingStart) -> None:
        """Report that an attempt is about to start."""
        if self._publisher is None:
            release_slot(start)
            return
        self._starts[start.attempt.key] = start
        message = command_message(
            ScheduleResult.kind, ScheduleResult.__name__,
            start.attempt.running(self._worker, start.started_at, heartbeat=HEARTBEAT), key=str(uuid4()),
            reply_to=self._reply_to, correlation_id=correlation_id(start.attempt), user_id=self._user_id,
        )
        try:
            self._publisher.send([message], lambda receipts: self._post(self._confirmed, start, receipts[0]))
        except Unavailable:
            self._requeue(start)

    def _confirmed(self, start: PendingStart, receipt: Receipt) -> None:
        if self._starts.get(start.attempt.key) is not start or start.step is not StartStep.ANNOUNCED:
            return
        if receipt is Receipt.CONFIRMED:
            start.step = StartStep.CONFIRMED
        else:
            self._requeue(start)

    def _requeue(self, start: PendingStart) -> None:
        """Return the message to the queue, a little later: no queue accepts results now."""
        self._starts.pop(start.attempt.key, None)
        release_slot(start)
        timer = threading.Timer(_REQUEUE_SECONDS, start.queue.give_back, (start.tag,))
        timer.daemon = True
        timer.start()

    def on_reply(self, key: Key, status: str) -> None:
        """Start an attempt if the sidecar has recorded it for this worker; otherwise drop it."""
        start = self._starts[key]
        if status == "recorded":
            self._acknowledge(start)
        elif start.step is not StartStep.ACKNOWLEDGED:
            del self._starts[key]
            release_slot(start)
            log.info("command not started: run ended or at another worker", event_id=key[0], attempt=key[1])
            start.queue.acknowledge(start.tag)

    def start_overdue(self) -> None:
        """Start the attempts without a reply in time: the broker has their `running` at least."""
        now = time.monotonic()
        for start in list(self._starts.values()):
            if start.step is StartStep.CONFIRMED and start.reply_by < now:
                log.warning("no reply to `running`; starting the command", event_id=start.attempt.event_id,
                            do="check that `scheduler consumer` runs")
                self._acknowledge(start)

    def _acknowledge(self, start: PendingStart) -> None:
        if start.step is StartStep.ACKNOWLEDGED:
            return
        start.step = StartStep.ACKNOWLEDGED
        start.offer.used += 1
        if start.reserved:
            start.reserved = False
            start.offer.starting -= 1
        start.queue.acknowledge(start.tag, lambda: self._post(self._acknowledged, start))

    def _acknowledged(self, start: PendingStart) -> None:
        if self._starts.pop(start.attempt.key, None) is start:
            self._start(start)

    def give_back(self) -> None:
        """Return the unacknowledged messages to the queue; acknowledged attempts still start."""
        for key, start in list(self._starts.items()):
            if start.step is not StartStep.ACKNOWLEDGED:
                del self._starts[key]
                release_slot(start)
                start.queue.give_back(start.tag)


def reserve_slot(start: PendingStart) -> None:
    """Take a slot of a command that tenants do not share; if it is the last one, stop consuming."""
    start.reserved = True
    start.offer.starting += 1
    if start.offer.full:
        start.offer.pause()


def release_slot(start: PendingStart) -> None:
    """Free the slot of a start that does not happen."""
    if start.reserved:
        start.reserved = False
        start.offer.starting -= 1
    if start.offer.tenant_queues is not None and start.ticket is not None:
        start.offer.tenant_queues.end(start.ticket)
        start.ticket = None


def correlation_id(attempt: WorkerAttempt) -> str:
    """Return the correlation_id of an attempt's results."""
    return f"{attempt.event_id} {attempt.number}"


def read_correlation_id(text: str | None) -> Key:
    """Return the attempt of a reply. Raises ValueError if the correlation_id is not ours."""
    event_id, number = (text or "").split(" ")
    return event_id, int(number)
