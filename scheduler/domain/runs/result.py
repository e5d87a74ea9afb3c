"""Results of attempts as compared and stored."""

import json
from dataclasses import dataclass
from datetime import datetime

from scheduler.domain.messages import ResultStatus, ScheduleResult, ScheduleWorker
from scheduler.domain.offer_tenants import OfferTenants
from scheduler.domain.worker_facts import WorkerFacts

ERROR_CHARACTERS = 4000
OUTPUT_BYTES = 64 * 1024
_RANKS = {ResultStatus.RUNNING: 0, ResultStatus.SNOOZED: 1, ResultStatus.FAILED: 2, ResultStatus.SUCCEEDED: 4}


@dataclass(slots=True)
class Result:
    """A worker's report about an attempt, truncated to the limits."""

    event_id: str  # in Postgres's format
    attempt: int
    status: ResultStatus
    error: str | None = None
    output: str | None = None  # JSON text
    output_cut: bool = False
    retry: bool = True
    retry_in: float | None = None
    heartbeat: float | None = None
    progress: float | None = None
    worker: str | None = None
    tenant: str | None = None  # the owner of the job, if given
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def about(self) -> str:
        """The id of its run."""
        return self.event_id

    def weight(self) -> str:
        """Return the precedence among final results of one attempt: by severity, then in a fixed order."""
        rank = _RANKS[self.status] + (self.status is ResultStatus.FAILED and not self.retry)
        return f"{rank} {self.retry_in} {self.error} {self.output} {self.worker}"[:500]

    def category(self) -> tuple[ResultStatus | None, bool]:
        """Return the category of an early result; one result per category is stored.

        It is the status (running, succeeded, other), and whether the result can apply once the event is known: it
        belongs to the first attempt, or it is a success.
        """
        distinct = self.status in (ResultStatus.RUNNING, ResultStatus.SUCCEEDED)
        return self.status if distinct else None, self.attempt == 1 or self.status is ResultStatus.SUCCEEDED

    def order(self) -> tuple[int, str]:
        """Return the sort key of early results, which does not depend on the order of arrival."""
        return self.attempt, self.weight()


@dataclass(slots=True)
class WorkerReport:
    """A worker's heartbeat message, received with the results."""

    message: ScheduleWorker
    offer_tenants: OfferTenants | None = None
    handlers: str | None = None  # the catalogue as JSON; None if this message has none
    facts: WorkerFacts | None = None  # None: of an older worker
    trusted: bool = True  # False: not from a worker's broker user, so not stored

    @property
    def about(self) -> str:
        """The id of the worker."""
        return str(self.message.id)


def truncate_result(result: ScheduleResult, event_id: str, output: str | None) -> Result:
    """Return a result with its error and output, the source text, truncated to the limits."""
    error = result.error
    cut = output is not None and len(output) * 4 > OUTPUT_BYTES and len(output.encode()) > OUTPUT_BYTES
    if output is not None and cut:
        output = json.dumps(output.encode()[:OUTPUT_BYTES].decode(errors="ignore"), ensure_ascii=False)
    return Result(
        event_id, result.attempt, result.status, None if error is None else error[:ERROR_CHARACTERS],
        None if output == "null" else output, cut, result.retry, result.retry_in, result.heartbeat,
        result.progress, result.worker, result.tenant, result.started_at, result.finished_at,
    )
