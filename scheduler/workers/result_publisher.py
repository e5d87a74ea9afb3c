"""Publish results until the broker confirms them, across reconnects."""

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
_refusals = ThrottledWarning(log, "no queue accepts results; retrying")

RETRY_SECONDS = 1.0
_ERROR_CHARACTERS = 1000  # kept of the error if the broker rejects the whole result
_KEYS = count()  # identify a returned result


@dataclass(slots=True, eq=False)
class PendingResult:
    """A ScheduleResult, and the actions after the broker has confirmed it, on the I/O thread."""

    body: bytes
    then: Callable[[], None] | None = None
    queue: WorkQueue | None = None  # acknowledge the delivery `tag` there
    tag: int = 0
    correlation_id: str | None = None  # if set, the sidecar replies


def _shrink(report: PendingResult) -> bool:
    """Remove the output and most of the error; return False if there is nothing to remove."""
    result = json.loads(report.body)
    shrunk = result.pop("output", None) is not None
    error = result.get("error")
    if isinstance(error, str) and len(error) > _ERROR_CHARACTERS:
        result["error"], shrunk = error[:_ERROR_CHARACTERS], True
    report.body = json.dumps(result).encode()
    return shrunk


class ResultPublisher:
    """Publishes results with confirms. Thread-safe; `report` does not block."""

    def __init__(self, *, with_user_id: bool = False) -> None:
        """With `with_user_id`, set the user_id that the broker verifies (SCHEDULER_TENANT_BY)."""
        self._with_user_id = with_user_id
        self._user_id: str | None = None
        self._lock = threading.Lock()
        self._pending: deque[PendingResult] = deque()
        self._unconfirmed = 0
        self._publisher: Publisher | None = None
        self._reply_to: str | None = None
        self._not_before = 0.0

    def attach(self, link: Link, reply_to: str | None = None) -> None:
        """Publish pending and new results on this connection; replies go to `reply_to`."""
        self._user_id = link.user if self._with_user_id else None
        self._reply_to = reply_to
        self._publisher = Publisher(link)
        self._not_before = 0.0
        self.turn()

    def detach(self) -> None:
        """Hold results until there is another connection."""
        self._publisher = None

    @property
    def idle(self) -> bool:
        """Whether the broker has confirmed all results."""
        return not self._pending and not self._unconfirmed

    def report(self, reports: Sequence[PendingResult]) -> None:
        """Publish results in order; hold them until they are confirmed."""
        with self._lock:
            self._pending.extend(reports)
        if self._not_before <= time.monotonic():
            self.turn()

    def turn(self) -> None:
        """Publish pending results if connected; call this periodically."""
        publisher = self._publisher
        if publisher is None or not self._pending or self._not_before > time.monotonic():
            return
        with self._lock:
            batch = list(self._pending)
            self._pending.clear()
            self._unconfirmed += len(batch)
        now = int(time.time())
        messages = [self._message(report, now) for report in batch]
        try:
            if messages:
                publisher.send(messages, lambda receipts: self._on_receipts(batch, receipts))
        except Unavailable:
            self._on_receipts(batch, [Receipt.UNKNOWN] * len(batch))

    def _message(self, report: PendingResult, now: int) -> Publishable:
        if report.correlation_id is not None:
            return command_message(
                ScheduleResult.kind, ScheduleResult.__name__, report.body, key=str(next(_KEYS)),
                reply_to=self._reply_to, correlation_id=report.correlation_id, user_id=self._user_id,
            )
        return DueMessage(report.body, str(next(_KEYS)), now, routing_key=ScheduleResult.kind,
                          exchange=COMMANDS_EXCHANGE, kind=ScheduleResult.__name__, user_id=self._user_id)

    def _on_receipts(self, batch: Sequence[PendingResult], receipts: Sequence[Receipt]) -> None:
        pairs = list(zip(batch, receipts, strict=True))
        # Retry a result that the broker cannot accept without its output; if that fails too, drop it.
        dropped = [report for report, receipt in pairs if receipt is Receipt.UNSENDABLE and not _shrink(report)]
        retried = [
            report for report, receipt in pairs if receipt is not Receipt.CONFIRMED and report not in dropped
        ]
        with self._lock:
            self._unconfirmed -= len(batch)
            self._pending.extendleft(reversed(retried))
            if retried:
                self._not_before = time.monotonic() + RETRY_SECONDS
        refused = [receipt for receipt in receipts if receipt in (Receipt.RETURNED, Receipt.REFUSED)]
        if refused:
            _refusals.warning(count=len(refused), problem=refused[0].value, do="start `scheduler consumer`")
        if dropped:
            log.error("results dropped", count=len(dropped), problem="too large for the broker",
                      do="see `message cannot be sent` above; the runs end at their deadline")
        self._settle([report for report, receipt in pairs if receipt is Receipt.CONFIRMED] + dropped)

    @staticmethod
    def _settle(reports: Sequence[PendingResult]) -> None:
        tags_by_queue: dict[WorkQueue, list[int]] = {}
        for report in reports:
            if report.queue is not None:
                tags_by_queue.setdefault(report.queue, []).append(report.tag)
            if report.then is not None:
                report.then()
        for queue, tags in tags_by_queue.items():
            queue.ack_here(tags)
