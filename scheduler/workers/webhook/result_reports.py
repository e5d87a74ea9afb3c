"""What is said of webhooks: results to the sidecar, counts and log lines to operators."""

import asyncio
import time
from datetime import datetime
from functools import lru_cache
from typing import Any

from scheduler.domain.messages import ResultStatus
from scheduler.ops import metrics
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.work_queue import WorkQueue
from scheduler.workers.attempt import WorkerAttempt
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.result_publisher import PendingResult, ResultPublisher
from scheduler.workers.webhook.http_call import CallResult
from scheduler.workers.worker import Worker

log = get_logger(__name__)
_failures = ThrottledWarning(log, "webhook failed")

RUNNING_AFTER = 1.0  # seconds: a call that takes longer is told to be running
SHORT_START = 5.0  # seconds: with less than that to begin it is told sooner
FLUSH_SECONDS = 0.005
_of_class = lru_cache(metrics.webhook_requests.labels)
FEW = 10  # calls in flight: with so few nobody waits for others' results


class ResultReporter:
    """Reports from the event loop, several together. All of it is the loop's own but `_confirmed`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Worker, reporter: ResultPublisher) -> None:
        self._loop = loop
        self._worker = worker
        self._reporter = reporter
        self._reports: list[PendingResult] = []
        self._unsaid: dict[WorkerAttempt, tuple[float, datetime]] = {}  # calls in flight not told to be running
        self._unconfirmed: dict[tuple[str, int], bytes] = {}  # results that the broker may not have yet

    def begun(self, attempt: WorkerAttempt, endpoint: str, started_at: datetime) -> None:
        """A call has begun; should it take long, that is told."""
        self._worker.begin(attempt, endpoint, started_at)
        self._unsaid[attempt] = time.monotonic(), started_at
        # A timer for each call is dear: only one that has little time to begin has its own.
        if attempt.start_timeout < SHORT_START:
            self._loop.call_later(attempt.start_timeout / 5, self._say_running, attempt)

    def look(self) -> None:
        """Tell of calls that have become long ones; to be called a few times in a second."""
        now = time.monotonic()
        for attempt, (began, _) in list(self._unsaid.items()):  # in the order in which they began
            if now - began < RUNNING_AFTER:
                break
            self._say_running(attempt)

    def _say_running(self, attempt: WorkerAttempt) -> None:
        began = self._unsaid.pop(attempt, None)
        if began is not None:
            self._send(PendingResult(attempt.running(self._worker.name, began[1])))

    def ended(self, attempt: WorkerAttempt, called: CallResult, endpoint: str, seconds: float) -> None:
        """Show an operator how a call went: never a query, a header or a body."""
        succeeded = called.outcome.status is ResultStatus.SUCCEEDED
        if succeeded and not log.shows_debug:
            return
        fields: dict[str, Any] = {
            "event_id": attempt.event_id, "attempt": attempt.number, "endpoint": endpoint, "class": called.kind,
            "ms": round(seconds * 1000, 1),
        }
        if succeeded:
            log.debug("webhook called", **fields)
        else:
            _failures.warning(problem=called.outcome.error, **fields)

    def report(
        self, attempt: WorkerAttempt, outcome: WorkOutcome, kind: str, *, queue: WorkQueue | None, tag: int,
        started_at: datetime | None = None,
    ) -> None:
        """Report how an attempt ended or that it is put off; then its delivery is acknowledged."""
        self._unsaid.pop(attempt, None)
        _of_class(kind).inc()
        self._worker.end(attempt, outcome)
        body = self._unconfirmed[attempt.key] = attempt.says(outcome, self._worker.name, started_at)
        self._send(PendingResult(body, lambda: self._confirmed(attempt.key), queue, tag))

    def repeated(self, attempt: WorkerAttempt, queue: WorkQueue | None, tag: int) -> bool:
        """Report again where an attempt comes back before the broker had our word for it; False if it is new."""
        body = self._unconfirmed.get(attempt.key)
        if body is not None:
            self._send(PendingResult(body, None, queue, tag))
        return body is not None

    def _confirmed(self, key: tuple[str, int]) -> None:
        self._unconfirmed.pop(key, None)

    def _send(self, report: PendingResult) -> None:
        """Results of a moment go out together: each batch wakes the broker's thread, which is dear."""
        if not self._reports:
            self._loop.call_later(FLUSH_SECONDS if self._worker.in_flight > FEW else 0.0, self._flush)
        self._reports.append(report)

    def _flush(self) -> None:
        reports, self._reports = self._reports, []
        self._reporter.report(reports)
