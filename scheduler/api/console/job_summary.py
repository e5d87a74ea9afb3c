"""Where a job stands and how it fared, told in sentences and pictures: what its page shows and keeps live."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from scheduler.api.console import formatting, run_charts
from scheduler.postgres.jobs.lists import JobRow
from scheduler.views.jobs import JobView, job_view
from scheduler.views.occurrences import occurrences
from scheduler.views.runs import RunView

PARTS = ("head", "next", "strip", "ahead", "runs")
_RUNS_LISTED = 5
_AHEAD = 10
_STANDING = {
    "paused": "Paused: nothing is emitted until the job is resumed.",
    "cancelled": "Cancelled: nothing more is emitted.",
    "done": "Done: every occurrence was emitted or skipped.", "pending": "No next run.",
}


def job_context(row: JobRow, runs: Sequence[RunView], now: datetime) -> dict[str, Any]:
    """Return what the live parts of a job's page show."""
    job = job_view(row)
    ahead = occurrences(row, now, count=_AHEAD, start=None, end=None) if job.status == "pending" else []
    return {"job": job, "show_job": False, "runs": runs[:_RUNS_LISTED], "more_runs": len(runs) > _RUNS_LISTED,
            "occurrences": ahead, "trouble": _problem_text(runs), **_schedule_text(job), **_charts(job, runs)}


def _problem_text(runs: Sequence[RunView]) -> RunView | None:
    """Return the newest run if it was given up, or failed and is tried again."""
    newest = runs[0] if runs else None
    if newest is None or not (newest.status == "dead" or (newest.status == "waiting" and newest.error)):
        return None
    return newest


def _schedule_text(job: JobView) -> dict[str, Any]:
    """Return what is told of a job in sentences."""
    late = job.last_emitted_at - job.last_due_at if job.last_emitted_at and job.last_due_at else timedelta()
    return {"written": job.rrule or job.cron or "", "standing": _STANDING[job.status], "policy": _policy(job),
            "late": formatting.span(max(0.0, late.total_seconds()))}


def _policy(job: JobView) -> str:
    run = job.run
    if run is None:
        return ""
    if run.max_attempts == 1:
        return f"no retries; each attempt may take {formatting.span(run.timeout)}"
    grows = {"exponential": ", doubling", "linear": ", growing", "fixed": ""}.get(str(run.backoff), "")
    first = run.delay if isinstance(run.backoff, str) else run.backoff[0]
    return (f"up to {run.max_attempts} attempts, the first retry after {formatting.span(first)}{grows}; "
            f"each attempt may take {formatting.span(run.timeout)}")


def _charts(job: JobView, runs: Sequence[RunView]) -> dict[str, Any]:
    known = [run.model_dump() for run in runs]
    late = run_charts.lateness(known)
    latest = max(late, key=lambda each: each[1])[2].removeprefix("started ").split(" after")[0] if late else ""
    return {"bars": run_charts.run_bars(known, job.timezone), "late_bars": late, "latest": latest}
