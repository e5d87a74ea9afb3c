"""A result as it is weighed and kept: what a worker said of an attempt."""

import json
from dataclasses import dataclass
from datetime import datetime

from scheduler.domain.messages import ResultStatus, ScheduleResult, ScheduleWorker
from scheduler.domain.offer_tenants import OfferTenants

ERROR_CHARACTERS = 4000
OUTPUT_BYTES = 64 * 1024
_RANKS = {ResultStatus.RUNNING: 0, ResultStatus.SNOOZED: 1, ResultStatus.FAILED: 2, ResultStatus.SUCCEEDED: 4}


@dataclass(slots=True)
class Result:
    """What a worker said of an attempt, cut to what is kept."""

    event_id: str  # as Postgres writes it
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
    tenant: str | None = None  # of whom it says that its job is; None where it does not say
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def about(self) -> str:
        """The id of its run."""
        return self.event_id

    def weight(self) -> str:
        """Return what decides between two final words about one attempt: the graver, then any fixed order."""
        rank = _RANKS[self.status] + (self.status is ResultStatus.FAILED and not self.retry)
        return f"{rank} {self.retry_in} {self.error} {self.output} {self.worker}"[:500]

    def sort(self) -> tuple[ResultStatus | None, bool]:
        """Return of which sort an early result is; of each sort one is kept.

        A sign of life, a success, or another final word; and whether it can count once the event is known, for of
        the first attempt it is then, or it is a success.
        """
        known = self.status in (ResultStatus.RUNNING, ResultStatus.SUCCEEDED)
        return self.status if known else None, self.attempt == 1 or self.status is ResultStatus.SUCCEEDED

    def order(self) -> tuple[int, str]:
        """Return what early results are sorted by: it must not be the order in which they came."""
        return self.attempt, self.weight()


@dataclass(slots=True)
class WorkerReport:
    """What a worker says of itself, which comes by the same way as results."""

    message: ScheduleWorker
    offer_tenants: OfferTenants | None = None
    trusted: bool = True  # False: its broker user is not a worker's, and it is not stored

    @property
    def about(self) -> str:
        """The id of the worker."""
        return str(self.message.id)


def truncate_result(result: ScheduleResult, event_id: str, output: str | None) -> Result:
    """Return a result with its error and its output, the text as it came, cut to what is kept."""
    error = result.error
    cut = output is not None and len(output) * 4 > OUTPUT_BYTES and len(output.encode()) > OUTPUT_BYTES
    if output is not None and cut:
        output = json.dumps(output.encode()[:OUTPUT_BYTES].decode(errors="ignore"), ensure_ascii=False)
    return Result(
        event_id, result.attempt, result.status, None if error is None else error[:ERROR_CHARACTERS],
        None if output == "null" else output, cut, result.retry, result.retry_in, result.heartbeat,
        result.progress, result.worker, result.tenant, result.started_at, result.finished_at,
    )
