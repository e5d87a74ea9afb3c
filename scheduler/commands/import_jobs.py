"""Store imported requests in batches, each like a request from AMQP."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.decide_commands import LOCKED, MessageOutcome
from scheduler.commands.operator_commands import is_same_request
from scheduler.commands.transaction_hooks import TransactionHooks
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import CommandOutcome, Job, JobStatus
from scheduler.ops import metrics
from scheduler.postgres.connection import Connection

BATCH_LINES = 500
BATCH_BYTES = 4_000_000  # of payloads
LOCKED_LINE = (Problem("id", "another database session has locked this job: import this line again"),)


@dataclass(frozen=True, slots=True)
class ImportHooks(TransactionHooks):
    """Marks requests that define the stored job again, so that they change nothing."""

    batch: Sequence[Incoming]  # each id once

    def jobs_locked(self, jobs: Mapping[str, Job], now: datetime) -> None:
        """Compare each request without `issued_at` to its job; a cancelled job is scheduled again."""
        for incoming in self.batch:
            job = jobs.get(incoming.about)
            incoming.repeated = (
                job is not None and job.status is not JobStatus.CANCELLED and job.tenant == incoming.tenant
                and incoming.command.issued_at is None and _is_same(job, incoming, now)
            )


def _is_same(job: Job, incoming: Incoming, now: datetime) -> bool:
    try:
        return is_same_request(job, incoming, now)
    except Rejected:
        return False


def split_import(requests: Iterable[Incoming]) -> Iterator[list[Incoming]]:
    """Yield the requests in batches of limited size, in which no id repeats."""
    batch: list[Incoming] = []
    ids: set[str] = set()
    size = 0
    for incoming in requests:
        size += len(incoming.payload)
        if batch and (incoming.about in ids or len(batch) == BATCH_LINES or size > BATCH_BYTES):
            yield batch
            batch, ids, size = [], set(), len(incoming.payload)
        batch.append(incoming)
        ids.add(incoming.about)
    if batch:
        yield batch


def store_import(
    connection: Connection, batch: Sequence[Incoming], wake_horizon: timedelta, *, wait_for_locks: bool = True
) -> list[str | Sequence[Problem]]:
    """Store one batch; return for each request its status or its problems, LOCKED_LINE if its job is locked."""
    outcomes = apply_commands(connection, batch, wake_horizon, ImportHooks(batch), wait_for_locks=wait_for_locks)
    return [_result(outcome) for outcome in outcomes]


def _result(outcome: MessageOutcome) -> str | Sequence[Problem]:
    if outcome is LOCKED:
        return LOCKED_LINE
    if isinstance(outcome, Rejected):
        metrics.commands_rejected.labels(outcome.reason.value).inc()
        return outcome.problems
    assert isinstance(outcome, CommandOutcome)  # noqa: S101 - requests have no other outcome
    if outcome.status == "scheduled":
        metrics.jobs_queued.inc()
    return outcome.status
