"""Report webhook results, metrics and logs."""

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

RUNNING_AFTER = 1.0  # seconds after which a call is reported as running
SHORT_START = 5.0  # a call with a shorter start_timeout is reported sooner
FLUSH_SECONDS = 0.005
_of_class = lru_cache(metrics.webhook_requests.labels)
FEW = 10  # calls in flight up to which results are published at once


class ResultReporter:
    """Reports results in batches. Only `_confirmed` is called outside the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Worker, reporter: ResultPublisher) -> None:
        self._loop = loop
        self._worker = worker
        self._reporter = reporter
        self._reports: list[PendingResult] = []
        self._unreported: dict[WorkerAttempt, tuple[float, datetime]] = {}  # not yet reported as running
        self._unconfirmed: dict[tuple[str, int], bytes] = {}  # results that the broker has not confirmed

    def start(self, attempt: WorkerAttempt, endpoint: str, started_at: datetime) -> None:
        """Record the start of a call, to report it as running if it takes long."""
        self._worker.begin(attempt, endpoint, started_at)
        self._unreported[attempt] = time.monotonic(), started_at
        # A timer per call is expensive: only calls with a short start_timeout have one.
        if attempt.start_timeout < SHORT_START:
            self._loop.call_later(attempt.start_timeout / 5, self._send_running, attempt)

    def report_running(self) -> None:
        """Report long calls as running; call this several times per second."""
        now = time.monotonic()
        for attempt, (began, _) in list(self._unreported.items()):  # oldest first
            if now - began < RUNNING_AFTER:
                break
            self._send_running(attempt)

    def _send_running(self, attempt: WorkerAttempt) -> None:
        began = self._unreported.pop(attempt, None)
        if began is not None:
            self._send(PendingResult(attempt.running(self._worker.name, began[1])))

    def log_end(self, attempt: WorkerAttempt, called: CallResult, endpoint: str, seconds: float) -> None:
        """Log the end of a call, without its query, headers and body."""
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
        """Report an outcome, then acknowledge the delivery."""
        self._unreported.pop(attempt, None)
        _of_class(kind).inc()
        self._worker.end(attempt, outcome)
        body = self._unconfirmed[attempt.key] = attempt.result(outcome, self._worker.name, started_at)
        self._send(PendingResult(body, lambda: self._confirmed(attempt.key), queue, tag))

    def report_again(self, attempt: WorkerAttempt, queue: WorkQueue | None, tag: int) -> bool:
        """Repeat the unconfirmed result of a redelivered attempt; return False if there is none."""
        body = self._unconfirmed.get(attempt.key)
        if body is not None:
            self._send(PendingResult(body, None, queue, tag))
        return body is not None

    def _confirmed(self, key: tuple[str, int]) -> None:
        self._unconfirmed.pop(key, None)

    def _send(self, report: PendingResult) -> None:
        """Add a result to the next batch: each batch wakes the I/O thread, which is expensive."""
        if not self._reports:
            self._loop.call_later(FLUSH_SECONDS if self._worker.in_flight > FEW else 0.0, self._flush)
        self._reports.append(report)

    def _flush(self) -> None:
        reports, self._reports = self._reports, []
        self._reporter.report(reports)
