"""One day of a job: each occurrence, whether it ran, is planned, moved or skipped, and why."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.formatting import local
from scheduler.api.console.occurrence_rows import preview_rows
from scheduler.api.console.pages.audit import audit_rows
from scheduler.api.console.site import ConsoleRoute, Site, SiteParam, Visitor, may
from scheduler.api.identity import Identity, Permission
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.recurrence import zone
from scheduler.postgres.audit import StatusChange
from scheduler.postgres.jobs.lists import JobRow
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.jobs import JobView, job_view
from scheduler.views.runs import RunView

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_MOST = 200  # occurrences and runs
_CHANGES = 5
_STOPPED = ("paused", "cancelled")


@router.get("/jobs/{job_id}/day")
async def day_page(request: Request, site: SiteParam, who: Visitor, job_id: UUID) -> Response:
    """Show the occurrences of a day in the job's time zone."""
    row = await site.services.reads.job_row(who, job_id)
    job = job_view(row)
    day = _day(request.query_params.get("date", ""))
    here = zone(job.timezone)
    start, end = (datetime.combine(date, time(), here).astimezone(UTC) for date in (day, day + timedelta(days=1)))
    page = await site.services.reads.runs(who, RunFilter(job_id=str(job_id), since=start, until=end), _MOST)
    occurrences = await _occurrences(site, who, row, start, end)
    statuses = await site.services.reads.status_changes(who, row.job, end)
    rows = _rows(job, list(page.items), occurrences, statuses, datetime.now(UTC))
    return site.page(request, "job_day.html", {
        "who": who, "page": "jobs", "job": job, "day": day, "rows": rows[:_MOST], "more": len(rows) > _MOST,
        "changes": await _changes(site, who, job_id, end), "before": day - timedelta(days=1),
        "after": day + timedelta(days=1), "show_job": False,
    })


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise Unprocessable([Problem("date", f"must be a date such as 2026-11-20, not {text[:20]!r}")]) from None
    if not 1970 <= day.year < 9999:  # noqa: PLR2004 - of instants
        raise Unprocessable([Problem("date", "must be from 1970 to 9998")])
    return day


async def _occurrences(
    site: Site, who: Identity, row: JobRow, start: datetime, end: datetime
) -> list[dict[str, Any]]:
    """Return the occurrences of a span by the job's present schedule."""
    if row.job.requested.spec.manual:
        return []
    page = await site.services.reads.occurrences(who, UUID(row.job.id), count=_MOST, start=start, end=end)
    return preview_rows(page)


def _rows(
    job: JobView, runs: list[RunView], occurrences: list[dict[str, Any]], statuses: list[StatusChange],
    now: datetime,
) -> list[dict[str, Any]]:
    """Return runs and occurrences by time; an occurrence that has a run is one row."""
    by_time = {run.due_at: run for run in runs}
    rows = []
    for occurrence in occurrences:
        at = datetime.fromisoformat(occurrence["utc"])
        run = by_time.pop(at, None) if not occurrence["skipped"] else None
        state = "" if run is not None else _state(job, at, statuses, now, skipped=occurrence["skipped"])
        rows.append({"at": at, "run": run, "note": occurrence["note"], "skipped": occurrence["skipped"],
                     "state": state})
    rows += [{"at": at, "run": run, "note": "", "skipped": False, "state": ""} for at, run in by_time.items()]
    return sorted(rows, key=lambda row: row["at"])


def _state(job: JobView, at: datetime, statuses: list[StatusChange], now: datetime, *, skipped: bool) -> str:
    """Return the state of an occurrence without a run."""
    if skipped:
        return "skipped"
    if at >= now:
        return "planned" if job.status == "pending" else f"not planned: the job is {job.status}"
    if at < job.created_at:
        return "before the job was created"
    stopped = next((change for change in statuses if change.at <= at), None)  # the newest change before it
    if stopped is not None and stopped.status in _STOPPED:
        return f"not emitted then: {_who_stopped(stopped, job.timezone)}"
    if job.run is None and job.target is None:
        return "not recorded: the job is not tracked"
    return "no run: the occurrence was skipped or missed, or it was not in the schedule then"


def _who_stopped(change: StatusChange, timezone: str) -> str:
    reason = f" ({change.reason})" if change.reason else ""
    return f"{change.status} by {change.who or 'an unknown user'} on {local(change.at, timezone)}{reason}"


async def _changes(site: Site, who: Identity, job_id: UUID, end: datetime) -> list[dict[str, Any]] | None:
    """Return the newest changes of the job until the end of the day, None if the visitor may not see them."""
    if not may(who, Permission.WRITE):
        return None
    return audit_rows(await site.services.reads.job_audit(who, job_id, _CHANGES, end))
