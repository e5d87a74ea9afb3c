"""The pending jobs from which the load ahead is computed: all of a few, otherwise a random part."""

from dataclasses import dataclass, replace

from scheduler.domain.jobs.job import Job
from scheduler.postgres.connection import Connection, translated
from scheduler.postgres.effective_calendars import Effective, TenantCalendar, find_effective
from scheduler.postgres.jobs.columns import SELECTED_OF_PLAN, read
from scheduler.postgres.jobs.lists import JobFilter
from scheduler.resources import query

MOST = 2_000  # jobs that are computed one by one
_SAMPLED = 10_000  # rows read for a filter that a part of the jobs matches


@dataclass(slots=True)
class LoadRows:
    """Jobs with their calendars; each stands for `scale` jobs."""

    jobs: list[Job]
    calendars: Effective
    scale: float = 1.0


def load_rows(connection: Connection, wanted: JobFilter) -> LoadRows:
    """Return the matching pending jobs, or a part of them."""
    wanted = replace(wanted, status="pending")
    values = wanted.values() | {"before": None, "before_id": None, "limit": MOST + 1}
    with translated(), connection.cursor() as cursor:
        cursor.execute(query("jobs/load_few", selected=SELECTED_OF_PLAN, newest=wanted.newest), values)
        rows, scale = cursor.fetchall(), 1.0
        if len(rows) > MOST:
            cursor.execute(query("jobs/estimated_rows"))
            [(total,)] = cursor.fetchall()
            percent = min(100.0, 100.0 * (_SAMPLED if wanted.few else MOST) / total)
            sampled = query("jobs/load_sample", selected=SELECTED_OF_PLAN)
            cursor.execute(sampled, {"percent": percent, "most": _SAMPLED, "job_type": wanted.job_type,
                                     "tenant": wanted.tenant})
            rows, scale = cursor.fetchall(), 100.0 / percent
        jobs = [read(row) for row in rows]
        return LoadRows(jobs, find_effective(cursor, set(filter(None, map(_calendar, jobs)))), scale)


def _calendar(job: Job) -> TenantCalendar | None:
    name = job.requested.spec.calendar
    return None if name is None else TenantCalendar(job.tenant, name)
