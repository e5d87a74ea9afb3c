"""Plan jobs again after a change: lock a batch, plan it, announce it, save it, in one transaction."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from scheduler.domain.errors import Unavailable
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.jobs.replan import Cause, replanned_body, replanned_id
from scheduler.domain.names import EVENTS_EXCHANGE
from scheduler.ops import metrics
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.postgres.connection import Connection, Cursor, database_time, transaction
from scheduler.postgres.jobs.due import KIND
from scheduler.postgres.jobs.replan import lock_jobs, save_plans
from scheduler.postgres.wakeup import wake_producers
from scheduler.postgres.zone_files import record_zones
from scheduler.rabbit.frames import DueMessage
from scheduler.rabbit.publisher import Publisher, Receipt

log = get_logger(__name__)
_unplanned = ThrottledWarning(log, "job cannot be planned again")

BATCH = 200  # rows stay locked until the broker confirms their events
PART_SECONDS = 0.25  # of planning, for the same reason; the rest of a batch is listed again
_CONFIRM_SECONDS = 5.0
_WAKE_HORIZON = timedelta(seconds=10)  # longer than a producer sleeps


class Change(Protocol):
    """A change of a zone or a calendar, and the jobs that were planned before it."""

    @property
    def cause(self) -> Cause:
        """The change, for the event."""

    def list_jobs(self, cursor: Cursor, limit: int) -> list[str]:
        """Return ids of jobs that were planned before the change and are not due."""

    def prepare(self, cursor: Cursor, jobs: Sequence[Job]) -> None:
        """Read the data that `plan` needs for these jobs."""

    def plan(self, job: Job, now: datetime) -> Job:
        """Return the job with its new plan, marked as planned after the change; the same job if it already is."""

    def mark(self, job: Job) -> Job:
        """Return the job with its old plan, marked as planned after the change."""


def replan_batch(connection: Connection, publisher: Publisher, change: Change, ids: Sequence[str]) -> int:
    """Plan these jobs again; return how many were changed. Jobs that are due or locked are skipped.

    It ends early after PART_SECONDS of planning, so that costly schedules do not keep the rows locked. The events
    are confirmed before the commit, so that each is published at least once.
    """
    with transaction(connection) as cursor:
        now = database_time(cursor)
        jobs = lock_jobs(cursor, ids)
        change.prepare(cursor, jobs)
        plans = [(before, after) for before, after in plan_part(change, jobs, now) if after is not before]
        moved = [(before, after) for before, after in plans if after.next_run_at != before.next_run_at]
        if moved:
            _announce(publisher, moved, change.cause, now)
        if plans:
            planned = [after for _, after in plans]
            record_zones(cursor, planned)
            save_plans(cursor, planned)
        _wake(cursor, [after for _, after in moved], now)
    metrics.jobs_replanned.labels(change.cause.reason).inc(len(moved))
    return len(plans)


def plan_part(change: Change, jobs: Sequence[Job], now: datetime) -> Iterator[tuple[Job, Job]]:
    """Yield jobs with their new plans for PART_SECONDS, and at least one."""
    began = time.monotonic()
    for job in jobs:
        yield job, _plan(change, job, now)
        if time.monotonic() - began > PART_SECONDS:
            return


def _plan(change: Change, job: Job, now: datetime) -> Job:
    try:
        return change.plan(job, now)
    except Exception as error:  # noqa: BLE001 - a row written by hand may contain anything
        _unplanned.warning(job_id=job.id, problem=f"{type(error).__name__}: {error}"[:500],
                           do="check its row in the table; resend its request or cancel it")
        return change.mark(job)


def _announce(publisher: Publisher, moved: Sequence[tuple[Job, Job]], cause: Cause, now: datetime) -> None:
    seconds = int(now.timestamp())
    receipts = publisher.send([
        DueMessage(replanned_body(before, after, cause), replanned_id(before, after, cause), seconds,
                   after.definition.correlation_id if after.definition is not None else None,
                   exchange=EVENTS_EXCHANGE, routing_key="replanned", kind="ScheduleReplanned", mandatory=False)
        for before, after in moved
    ]).wait(_CONFIRM_SECONDS)
    if not set(receipts) <= {Receipt.CONFIRMED, Receipt.UNSENDABLE}:
        raise Unavailable("RabbitMQ: the events of jobs planned again were not confirmed")


def _wake(cursor: Cursor, jobs: Sequence[Job], now: datetime) -> None:
    """Wake producers for jobs that are due soon, or already."""
    soon = [job.next_run_at for job in jobs
            if job.status is JobStatus.PENDING and job.next_run_at is not None]
    if soon and min(soon) <= now + _WAKE_HORIZON:
        wake_producers(cursor, KIND, min(soon))
