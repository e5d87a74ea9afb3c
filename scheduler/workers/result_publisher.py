"""Keeps results until the broker has them, over as many connections as that takes."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from scheduler.domain.errors import Unavailable
from scheduler.domain.messages import ScheduleResult
from scheduler.domain.names import COMMANDS_EXCHANGE
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.frames import DueMessage, Publishable, command_message
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher, Receipt
from scheduler.rabbit.work_queue import WorkQueue

log = get_logger(__name__)
_refusals = ThrottledWarning(log, "no queue takes results: trying again")

AGAIN_SECONDS = 1.0
_ERROR_CHARACTERS = 1000  # of a result that the broker does not accept as it is
_KEYS = count()  # tell a returned result from its neighbours


@dataclass(slots=True, eq=False)
class PendingResult:
    """A ScheduleResult, and what follows on the I/O thread once the broker has it."""

    body: bytes
    then: Callable[[], None] | None = None
    queue: WorkQueue | None = None  # whose delivery `tag` is then acknowledged
    tag: int = 0
    about: str | None = None  # set where an answer is wanted: its correlation_id


def _shrink(report: PendingResult) -> bool:
    """Leave out the output and most of the error; False if there is nothing to leave out."""
    result = json.loads(report.body)
    had = result.pop("output", None) is not None
    error = result.get("error")
    if isinstance(error, str) and len(error) > _ERROR_CHARACTERS:
        result["error"], had = error[:_ERROR_CHARACTERS], True
    report.body = json.dumps(result).encode()
    return had


class ResultPublisher:
    """Publishes results with confirms. Any thread may report; none waits."""

    def __init__(self, *, says_who: bool = False) -> None:
        """With `says_who` each result carries the user_id that the broker checks (SCHEDULER_TENANT_BY)."""
        self._says_who = says_who
        self._user_id: str | None = None
        self._lock = threading.Lock()
        self._waiting: deque[PendingResult] = deque()
        self._sent = 0  # on their way
        self._publisher: Publisher | None = None
        self._reply_to: str | None = None
        self._not_before = 0.0

    def attach(self, link: Link, reply_to: str | None = None) -> None:
        """Send by this connection from now on, first of all what is still here; answers go to `reply_to`."""
        self._user_id = link.user if self._says_who else None
        self._reply_to = reply_to
        self._publisher = Publisher(link)
        self._not_before = 0.0
        self.turn()

    def detach(self) -> None:
        """Keep what comes until there is another connection."""
        self._publisher = None

    @property
    def idle(self) -> bool:
        """Whether the broker has all that was reported."""
        return not self._waiting and not self._sent

    def report(self, reports: Sequence[PendingResult]) -> None:
        """Put results on their way, in order; they stay here until they are confirmed."""
        with self._lock:
            self._waiting.extend(reports)
        if self._not_before <= time.monotonic():
            self.turn()

    def turn(self) -> None:
        """Send what waits, if there is someone to take it; to be called now and then."""
        publisher = self._publisher
        if publisher is None or not self._waiting or self._not_before > time.monotonic():
            return
        with self._lock:
            batch = list(self._waiting)
            self._waiting.clear()
            self._sent += len(batch)
        now = int(time.time())
        messages = [
            self._message(each, now)
            for each in batch
        ]
        try:
            if messages:
                publisher.send(messages, lambda receipts: self._receipts(batch, receipts))
        except Unavailable:
            self._receipts(batch, [Receipt.UNKNOWN] * len(batch))

    def _message(self, each: PendingResult, now: int) -> Publishable:
        if each.about is not None:
            return command_message(
                ScheduleResult.kind, ScheduleResult.__name__, each.body, key=str(next(_KEYS)),
                reply_to=self._reply_to, correlation_id=each.about, user_id=self._user_id,
            )
        return DueMessage(each.body, str(next(_KEYS)), now, routing_key=ScheduleResult.kind,
                          exchange=COMMANDS_EXCHANGE, kind=ScheduleResult.__name__, user_id=self._user_id)

    def _receipts(self, batch: Sequence[PendingResult], receipts: Sequence[Receipt]) -> None:
        told = list(zip(batch, receipts, strict=True))
        # What the broker does not accept goes again without its output; if even that is too large, it is dropped.
        dropped = [each for each, receipt in told if receipt is Receipt.UNSENDABLE and not _shrink(each)]
        left = [each for each, receipt in told if receipt is not Receipt.CONFIRMED and each not in dropped]
        with self._lock:
            self._sent -= len(batch)
            self._waiting.extendleft(reversed(left))
            if left:
                self._not_before = time.monotonic() + AGAIN_SECONDS
        refused = [receipt for receipt in receipts if receipt in (Receipt.RETURNED, Receipt.REFUSED)]
        if refused:
            _refusals.warning(count=len(refused), problem=refused[0].value, do="start `scheduler consumer`")
        if dropped:
            log.error("results dropped", count=len(dropped), problem="the broker does not accept them",
                      do="see `message cannot be sent` above; their runs end at their deadline")
        self._conclude([each for each, receipt in told if receipt is Receipt.CONFIRMED] + dropped)

    @staticmethod
    def _conclude(confirmed: Sequence[PendingResult]) -> None:
        done: dict[WorkQueue, list[int]] = {}
        for each in confirmed:
            if each.queue is not None:
                done.setdefault(each.queue, []).append(each.tag)
            if each.then is not None:
                each.then()
        for queue, tags in done.items():
            queue.ack_here(tags)
