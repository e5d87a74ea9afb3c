"""What is new in an open list: of the newest of all, those that belong on its page and are not there."""

from collections.abc import Collection, Iterable
from datetime import datetime

from scheduler.postgres.jobs.lists import JobFilter
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.jobs import JobView
from scheduler.views.runs import RunView

Place = tuple[datetime, str]


def new_jobs(found: Iterable[JobView], wanted: JobFilter, shown: Collection[str], last: Place | None) -> int:
    """Count the jobs that match and stand before the last one shown; all where the page has room left."""
    return sum(1 for job in found if str(job.id) not in shown and job_matches(wanted, job)
               and (last is None or (job.created_at, str(job.id)) > last))


def new_runs(found: Iterable[RunView], wanted: RunFilter, shown: Collection[str], last: Place | None) -> int:
    """Count the runs that match and stand before the last one shown; all where the page has room left."""
    return sum(1 for run in found if str(run.event_id) not in shown and run_matches(wanted, run)
               and (last is None or (run.due_at, str(run.event_id)) > last))


def job_matches(wanted: JobFilter, job: JobView) -> bool:
    """Tell what jobs/job_filters.sql would."""
    exact = ((wanted.status, job.status), (wanted.tenant, job.tenant), (wanted.job_type, job.job_type),
             (wanted.priority, str(job.priority)))
    if any(asked not in (None, has) for asked, has in exact):
        return False
    texts = (job.job_type, job.name or "")
    return wanted.q is None or str(job.id).startswith(wanted.q.lower()) or any(
        each.startswith(wanted.q) for each in texts)


def run_matches(wanted: RunFilter, run: RunView) -> bool:
    """Tell what runs/run_filters.sql would."""
    exact = ((wanted.status, run.status), (wanted.tenant, run.tenant), (wanted.job_type, run.job_type),
             (wanted.job_id, str(run.job_id)), (wanted.worker, run.worker))
    if any(asked not in (None, has) for asked, has in exact):
        return False
    return not ((wanted.since is not None and run.due_at < wanted.since)
                or (wanted.until is not None and run.due_at >= wanted.until))
