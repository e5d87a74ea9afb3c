"""Counts what the handlers of a worker process do, for its liveness messages."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from scheduler.client.results import Snooze
from scheduler.client.work import Work
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.worker import Worker


@dataclass(frozen=True, slots=True)
class HandlerAttempt:
    """A handler's attempt at an event; without a run, the number of calls."""

    key: tuple[str, int]


class HandlerActivity:
    """Reports the start and end of handlers to the worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._running: set[HandlerAttempt] = set()

    def started(self, work: Work, job_type: str) -> None:
        """Record a handler's start."""
        attempt = _attempt(work)
        if attempt is not None:
            self._running.add(attempt)
            self._worker.begin(attempt, job_type, datetime.now(UTC))

    def ended(self, work: Work, error: BaseException | None) -> None:
        """Record a handler's outcome."""
        attempt = _attempt(work)
        if attempt is not None:
            self._running.discard(attempt)
            self._worker.end(attempt, _outcome(error))

    def abandon(self) -> None:
        """Forget the handlers that outlast the grace period of a stop: they are reported as snoozed."""
        for attempt in list(self._running):
            self._worker.end(attempt, WorkOutcome.snoozed(0))


def _attempt(work: Work) -> HandlerAttempt | None:
    """Return the attempt; None for a message that is not an event of the sidecar."""
    event_id, number = work.key
    try:
        parsed_id = str(UUID(event_id))
    except (TypeError, ValueError, AttributeError):
        return None
    return HandlerAttempt((parsed_id, number if work.attempt is not None else number + 1))


def _outcome(error: BaseException | None) -> WorkOutcome:
    if error is None:
        return WorkOutcome.succeeded()
    return WorkOutcome.snoozed(error.seconds) if isinstance(error, Snooze) else WorkOutcome.failed(str(error))
