"""The list of late jobs: how long each is late, and why."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from scheduler.api.console.activity_history import alive
from scheduler.api.console.formatting import count, relative
from scheduler.api.console.problem_causes import problem_sentence
from scheduler.postgres.console_queries import SystemSnapshot
from scheduler.postgres.jobs.lists import JobRow
from scheduler.views.jobs import job_view


def late_rows(rows: Iterable[JobRow], pulse: SystemSnapshot | None, now: datetime) -> list[dict[str, Any]]:
    """Return jobs with their due time, lateness in seconds and cause."""
    due_at = [(row, row.due_position[0]) for row in rows]
    return [{"job": job_view(row), "due_at": due, "seconds": max(0.0, (now - due) / timedelta(seconds=1)),
             "cause": late_cause(row, pulse, now)} for row, due in due_at]


def late_cause(row: JobRow, pulse: SystemSnapshot | None, now: datetime) -> str:
    """Return why a job is due and not emitted."""
    job = row.job
    if job.retries:
        again = f"; next attempt {relative(job.retry_at, now)}" if job.retry_at and job.retry_at > now else ""
        problem = problem_sentence(row.beside.last_problem or "")
        return f"{problem}, refused {count(job.retries, 'time')}{again}"
    producers = [replica for replica in (pulse.replicas if pulse else ()) if replica["role"] == "producer"]
    if pulse is not None and not any(alive(producer, pulse.at) for producer in producers):
        return "No producer is running"
    return "Waits behind others: more is due than is emitted"
