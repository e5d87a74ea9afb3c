"""The live parts of a job's page: status, schedule, charts and recent runs."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from scheduler.api.console import formatting, run_charts
from scheduler.api.console.occurrence_rows import preview_rows
from scheduler.domain.calendars import EffectiveCalendar
from scheduler.domain.messages import Overlap, RunPolicy
from scheduler.domain.recurrence import local_time
from scheduler.domain.recurrence.preview import utc_text
from scheduler.postgres.jobs.lists import JobRow
from scheduler.views.jobs import DERIVED_FIELDS, JobView, job_view
from scheduler.views.occurrences import OccurrenceView, PreviewPage, occurrences_page
from scheduler.views.runs import RunView

PARTS = ("head", "next", "strip", "ahead", "runs")
_RUNS_LISTED = 5
_AHEAD = 10
_PLACED = {"description"}  # has its own place on the page
_MANUAL = "No schedule: it runs only when it is triggered."
_OVERLAPS = {Overlap.ALLOW: "starts", Overlap.SKIP: "is skipped", Overlap.WAIT: "waits"}
_STATUS_TEXTS = {
    "paused": "Paused: nothing is emitted until the job is resumed.",
    "cancelled": "Cancelled: nothing more is emitted.",
    "done": "Done: every occurrence was emitted or skipped.", "pending": "No next run.",
}


def job_context(
    row: JobRow, runs: Sequence[RunView], now: datetime, effective: EffectiveCalendar | None = None
) -> dict[str, Any]:
    """Return the context of a job page's live parts; `effective` is the job's calendar."""
    job = job_view(row)
    ahead = _ahead(row, now, effective) if job.status == "pending" else []
    return {"job": job, "show_job": False, "names": {},
            "runs": runs[:_RUNS_LISTED], "more_runs": len(runs) > _RUNS_LISTED,
            "occurrences": ahead, "other_fields": _other_fields(job), "trouble": _problem_text(runs),
            **_schedule_text(job), **_charts(job, runs)}


def _ahead(row: JobRow, now: datetime, effective: EffectiveCalendar | None) -> list[dict[str, Any]]:
    """Return the next occurrences; only the next one if the job's calendar is unknown."""
    spec, following = row.job.requested.spec, row.job.next_run_at
    if spec.calendar is None or effective is not None:
        return preview_rows(occurrences_page(row, now, effective, count=_AHEAD, start=None, end=None))
    if following is None:
        return []
    local = local_time(following, spec.timezone).isoformat()
    return preview_rows(PreviewPage([OccurrenceView(local=local, utc=utc_text(following), note="")]))


def _other_fields(job: JobView) -> list[tuple[str, Any]]:
    """Return labels and values of the request's fields that have no own place on the page."""
    values = ((name, getattr(job, name)) for name in DERIVED_FIELDS if name not in _PLACED)
    return [(name.replace("_", " ").capitalize(), value) for name, value in values if value is not None]


def _problem_text(runs: Sequence[RunView]) -> RunView | None:
    """Return the newest run if it is dead, or failed and awaits a retry."""
    newest = runs[0] if runs else None
    if newest is None or not (newest.status == "dead" or (newest.status == "waiting" and newest.error)):
        return None
    return newest


def _schedule_text(job: JobView) -> dict[str, Any]:
    """Return the descriptions of a job."""
    late = job.last_emitted_at - job.last_due_at if job.last_emitted_at and job.last_due_at else timedelta()
    return {"written": job.rrule or job.cron or "", "standing": _status_text(job), "policy": _policy(job),
            "late": formatting.span(max(0.0, late.total_seconds()))}


def _status_text(job: JobView) -> str:
    return _MANUAL if job.manual and job.status == "pending" else _STATUS_TEXTS[job.status]


def _policy(job: JobView) -> str:
    run = job.run
    if run is None:
        return ""
    if run.max_attempts == 1:
        return f"no retries; each attempt may take {formatting.span(run.timeout)}{_limit(run)}"
    grows = {"exponential": ", doubling", "linear": ", growing", "fixed": ""}.get(str(run.backoff), "")
    first = run.delay if isinstance(run.backoff, str) else run.backoff[0]
    return (f"up to {run.max_attempts} attempts, the first retry after {formatting.span(first)}{grows}; "
            f"each attempt may take {formatting.span(run.timeout)}{_limit(run)}")


def _limit(run: RunPolicy) -> str:
    if run.max_running is None:
        return ""
    return f"; with {run.max_running} open runs, the next occurrence {_OVERLAPS[run.overlap]}"


def _charts(job: JobView, runs: Sequence[RunView]) -> dict[str, Any]:
    fields = [run.model_dump() for run in runs]
    late = run_charts.lateness(fields)
    latest = max(late, key=lambda bar: bar[1])[2].removeprefix("started ").split(" after")[0] if late else ""
    return {"bars": run_charts.run_bars(fields, job.timezone), "late_bars": late, "latest": latest}
