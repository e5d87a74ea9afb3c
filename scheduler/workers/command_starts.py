"""The first steps of a command, in the order that keeps it from being run twice or not at all.

`running` is confirmed by the broker and recorded by the sidecar, the delivery is acknowledged, and only then the
program is started. A worker that dies anywhere on the way leaves either the message, for another, or a run whose
heartbeat ends.
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
from scheduler.ops.logs import get_logger
from scheduler.rabbit.command_queue import CommandQueue
from scheduler.rabbit.frames import command_message
from scheduler.rabbit.publisher import Publisher, Receipt
from scheduler.workers.attempt import WorkerAttempt
from scheduler.workers.command_fairness import TenantQueues
from scheduler.workers.command_process import CommandOrder
from scheduler.workers.commands_file import OfferedCommand

log = get_logger(__name__)

HEARTBEAT = 25.0  # a worker that dies is noticed within 30 s
ANSWER_SECONDS = 5.0  # the sidecar may be away: then what is due is begun without its word
_AGAIN_SECONDS = 1.0
Key = tuple[str, int]
Tell = Callable[..., None]


@dataclass(slots=True, eq=False)
class CommandSlots:
    """A command of the file, and how many of it are at work or about to be."""

    command: OfferedCommand
    queue: CommandQueue | None = None  # while there is a connection
    taken: int = 0
    turns: "TenantQueues[PendingStart] | None" = None  # of a command that several tenants share

    def __post_init__(self) -> None:
        if len(self.command.tenants) > 1 or ALL_TENANTS in self.command.tenants:
            self.turns = TenantQueues(self.command.concurrency)

    @property
    def full(self) -> bool:
        return self.taken >= self.command.concurrency


class StartStep(Enum):
    """How far a start has come."""

    ANNOUNCED = auto()
    CONFIRMED = auto()
    ACKNOWLEDGED = auto()


@dataclass(slots=True, eq=False)
class PendingStart:
    """An attempt that is about to begin."""

    offer: CommandSlots
    attempt: WorkerAttempt
    order: CommandOrder
    queue: CommandQueue
    tag: int
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    step: StartStep = StartStep.ANNOUNCED
    ticket: int | None = None  # of its turn, if its command is shared
    answer_by: float = field(default_factory=lambda: time.monotonic() + ANSWER_SECONDS)


class PendingStarts:
    """Those that are about to begin on one connection; used by one thread, to which `tell` brings the news."""

    def __init__(self, tell: Tell, begin: Callable[[PendingStart], None], worker: str) -> None:
        self._tell = tell
        self._begin = begin
        self._worker = worker
        self._publisher: Publisher | None = None
        self._reply_to = ""
        self._user_id: str | None = None
        self._starts: dict[Key, PendingStart] = {}

    def attach(self, publisher: Publisher, reply_to: str, user_id: str | None) -> None:
        """Go by this connection from now on, with the `user_id` that the broker checks, if that is asked for."""
        self._publisher, self._reply_to, self._user_id = publisher, reply_to, user_id

    def detach(self) -> None:
        """Forget those that have not begun: their messages come again, or their heartbeat ends."""
        self._publisher = None
        for start in self._starts.values():
            start.offer.taken -= start.step is StartStep.ACKNOWLEDGED
            _release_turn(start)
        self._starts.clear()

    def __contains__(self, key: Key) -> bool:
        return key in self._starts

    def __len__(self) -> int:
        return len(self._starts)

    def announce(self, start: PendingStart) -> None:
        """Say that an attempt is about to begin."""
        if self._publisher is None:
            return
        self._starts[start.attempt.key] = start
        message = command_message(
            ScheduleResult.kind, ScheduleResult.__name__,
            start.attempt.running(self._worker, start.started_at, heartbeat=HEARTBEAT), key=str(uuid4()),
            reply_to=self._reply_to, correlation_id=about(start.attempt), user_id=self._user_id,
        )
        try:
            self._publisher.send([message], lambda receipts: self._tell(self._confirmed, start, receipts[0]))
        except Unavailable:
            self._put_off(start)

    def _confirmed(self, start: PendingStart, receipt: Receipt) -> None:
        if self._starts.get(start.attempt.key) is not start or start.step is not StartStep.ANNOUNCED:
            return
        if receipt is Receipt.CONFIRMED:
            start.step = StartStep.CONFIRMED
        else:
            self._put_off(start)

    def _put_off(self, start: PendingStart) -> None:
        """Nobody takes our word now: let the message come again, a little later."""
        self._starts.pop(start.attempt.key, None)
        _release_turn(start)
        timer = threading.Timer(_AGAIN_SECONDS, start.queue.give_back, (start.tag,))
        timer.daemon = True
        timer.start()

    def answered(self, key: Key, status: str) -> None:
        """Heed what the sidecar says of an attempt: is it this worker's to begin?"""
        start = self._starts[key]
        if status == "recorded":
            self._take(start)
        elif start.step is not StartStep.ACKNOWLEDGED:
            del self._starts[key]
            _release_turn(start)
            log.info("not begun: the run is another's, or has ended", event_id=key[0], attempt=key[1])
            start.queue.acknowledge(start.tag)

    def turn(self) -> None:
        """Begin what the sidecar has said nothing of for too long: the broker has its `running` at least."""
        now = time.monotonic()
        for start in list(self._starts.values()):
            if start.step is StartStep.CONFIRMED and start.answer_by < now:
                log.warning("no answer to `running`: beginning without it", event_id=start.attempt.event_id,
                            do="check that `scheduler consumer` runs")
                self._take(start)

    def _take(self, start: PendingStart) -> None:
        if start.step is StartStep.ACKNOWLEDGED:
            return
        start.step = StartStep.ACKNOWLEDGED
        start.offer.taken += 1
        if start.offer.full and start.offer.turns is None:
            start.queue.pause()  # before the acknowledgement, which asks for the next one
        start.queue.acknowledge(start.tag, lambda: self._tell(self._acknowledged, start))

    def _acknowledged(self, start: PendingStart) -> None:
        if self._starts.pop(start.attempt.key, None) is start:
            self._begin(start)

    def give_back(self) -> None:
        """Let others have what has not begun here; what is acknowledged goes on."""
        for key, start in list(self._starts.items()):
            if start.step is not StartStep.ACKNOWLEDGED:
                del self._starts[key]
                _release_turn(start)
                start.queue.give_back(start.tag)


def _release_turn(start: PendingStart) -> None:
    if start.offer.turns is not None and start.ticket is not None:
        start.offer.turns.end(start.ticket)
        start.ticket = None


def about(attempt: WorkerAttempt) -> str:
    """Return the correlation_id of what is said of an attempt."""
    return f"{attempt.event_id} {attempt.number}"


def read_about(text: str | None) -> Key:
    """Return the attempt that an answer is about; raise ValueError where it is none of ours."""
    event_id, number = (text or "").split(" ")
    return event_id, int(number)
