"""Read one job with all its columns, for operators."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from scheduler.domain.jobs.job import JobStatus
from scheduler.postgres.connection import connect, translated
from scheduler.postgres.maintenance_queries import STALE_SECONDS
from scheduler.resources import query


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A job's row at time `now`, with the number of live replicas; the columns of jobs/report.sql by name."""

    id: str
    status: JobStatus
    job_type: str | None
    name: str | None
    description: str | None
    tenant: str
    route: str | None
    payload: str
    target: str | None
    rrule: str | None
    cron: str | None
    every: timedelta | None
    timezone: str
    starts_at: datetime | None
    manual: bool
    next_run_at: datetime | None
    occurrence: int
    retries: int
    retry_at: datetime | None
    triggers: tuple[datetime, ...]
    trigger_at: datetime | None
    triggered_at: datetime | None
    wake_at: datetime | None
    requested_at: datetime | None
    cancelled_at: datetime | None
    paused_at: datetime | None
    resumed_at: datetime | None
    created_at: datetime
    finished_at: datetime | None
    last_due_at: datetime | None
    last_emitted_at: datetime | None
    last_confirmed_at: datetime | None
    last_problem: str | None
    last_problem_at: datetime | None
    last_problem_due_at: datetime | None
    last_refusals: int | None
    in_hand: bool  # a producer or a consumer has locked the row
    producers: int
    consumers: int
    now: datetime

    @property
    def due_at(self) -> datetime | None:
        """The due_at of the next event: the oldest trigger or the next run."""
        if self.triggers and self.trigger_at is not None:
            return min(self.triggers[0], self.trigger_at)
        return self.next_run_at


def report(url: str, job_id: UUID) -> JobReport | None:
    """Return the job, or None. Raises Unavailable if the database cannot be reached."""
    connection = connect(url, "job show", default_transaction_read_only="on")
    try:
        with translated(), connection.cursor() as cursor:
            cursor.execute(query("jobs/report"), {"id": str(job_id), "stale_after": STALE_SECONDS})
            row = cursor.fetchone()
            if row is None:
                return None
            values = dict(zip([column.name for column in cursor.description or ()], row, strict=True))
            values |= {"status": JobStatus(values["status"]), "triggers": tuple(values["triggers"])}
            return JobReport(**values)
    finally:
        connection.close()
