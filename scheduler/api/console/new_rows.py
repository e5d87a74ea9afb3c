"""Count new rows of an open list: the newest rows that match its filters and that it does not show."""

from collections.abc import Collection, Iterable
from datetime import datetime

from scheduler.postgres.jobs.lists import JobFilter
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.jobs import JobView
from scheduler.views.runs import RunView

Position = tuple[datetime, str]


def new_jobs(newest: Iterable[JobView], filters: JobFilter, shown: Collection[str], last: Position | None) -> int:
    """Count matching jobs that sort before the last one shown; all of them if the page is not full."""
    return sum(1 for job in newest if str(job.id) not in shown and job_matches(filters, job)
               and (last is None or (job.created_at, str(job.id)) > last))


def new_runs(newest: Iterable[RunView], filters: RunFilter, shown: Collection[str], last: Position | None) -> int:
    """Count matching runs that sort before the last one shown; all of them if the page is not full."""
    return sum(1 for run in newest if str(run.event_id) not in shown and run_matches(filters, run)
               and (last is None or (run.due_at, str(run.event_id)) > last))


def job_matches(filters: JobFilter, job: JobView) -> bool:
    """Return whether a job matches the filters, like jobs/job_filters.sql."""
    exact = ((filters.status, job.status), (filters.tenant, job.tenant), (filters.job_type, job.job_type),
             (filters.priority, str(job.priority)))
    if any(required not in (None, actual) for required, actual in exact):
        return False
    texts = (job.job_type, job.name or "")
    return filters.q is None or str(job.id).startswith(filters.q.lower()) or any(
        text.startswith(filters.q) for text in texts)


def run_matches(filters: RunFilter, run: RunView) -> bool:
    """Return whether a run matches the filters, like runs/run_filters.sql."""
    exact = ((filters.status, run.status), (filters.tenant, run.tenant), (filters.job_type, run.job_type),
             (filters.job_id, str(run.job_id)), (filters.worker, run.worker))
    if any(required not in (None, actual) for required, actual in exact):
        return False
    return not ((filters.since is not None and run.due_at < filters.since)
                or (filters.until is not None and run.due_at >= filters.until))
