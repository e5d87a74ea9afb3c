"""One job: what it is, how it fared, when it runs, and what can be done with it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console import run_charts
from scheduler.api.console.job_summary import job_context
from scheduler.api.console.pages.audit import entries
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, The, Visitor, back, may, redirect_to
from scheduler.api.console.year_calendar import WEEKS_BACK, CalendarYear, build_year
from scheduler.api.identity import Identity, Permission
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.recurrence import Schedule, compile_schedule
from scheduler.postgres.audit import AuditFilter
from scheduler.postgres.console_queries import job_outcomes
from scheduler.postgres.jobs.lists import JobRow
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.jobs import JobView, job_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_CHANGES_LISTED = 20
_DONE = {"pause": "Paused", "resume": "Resumed", "trigger": "One extra run was triggered", "cancel": "Cancelled"}
_UNDO = {"pause": "resume", "resume": "pause"}


@router.get("/jobs/{job_id}")
async def job_page(request: Request, the: The, who: Visitor, job_id: UUID) -> Response:
    """Show one job."""
    row = await the.services.reads.job_row(who, job_id)
    job = job_view(row)
    runs, audit, calendar = await asyncio.gather(
        the.services.reads.runs(who, RunFilter(job_id=str(job_id)), run_charts.BARS), _audit(the, who, job_id),
        _year(the, row, job),
    )
    context = job_context(row, runs.items, datetime.now(UTC))
    return the.page(request, "job.html", context | {
        "who": who, "page": "jobs", "live": f"/live?topic=job:{job_id}", "audit": audit, "year": calendar,
    })


async def _audit(the: Site, who: Identity, job_id: UUID) -> list[dict[str, Any]] | None:
    """Return the newest changes of a job, None to those who may not see them."""
    if not may(who, Permission.AUDIT):
        return None
    page = await the.services.reads.audit(who, AuditFilter(kind="job", thing=str(job_id)), _CHANGES_LISTED)
    return entries(page.items)


async def _year(the: Site, row: JobRow, job: JobView) -> CalendarYear:
    now = datetime.now(UTC)
    since = now - timedelta(weeks=WEEKS_BACK + 1)
    past = await the.services.database.read(lambda at: job_outcomes(at, str(job.id), job.timezone, since))
    return build_year(past, _coming(row), job.timezone, now)


def _coming(row: JobRow) -> Schedule | None:
    """Return the schedule of a job that still runs."""
    asked = row.job.definition
    if asked is None or row.job.status is not JobStatus.PENDING or row.job.next_run_at is None:
        return None
    return compile_schedule(asked.spec)


async def _act(
    request: Request, the: Site, who: Identity, kind: str, *, job_id: UUID, form: dict[str, str]
) -> Response:
    """Do something to a job, and say what was done: in its row where that was asked from, or on the next page."""
    done = await the.services.actions.command(who, kind, job_id)
    job = job_view(done.row)
    if form.get("row") and request.headers.get("hx-request"):
        return the.part(request, "job_row", who, {"job": job})
    undo = f"/jobs/{job_id}/{_UNDO[kind]}" if kind in _UNDO else None
    flash = Flash(f"{_DONE[kind]}: {job.name or job.job_type}", then=undo)
    # An extra run is seen on the job's own page.
    there = f"/jobs/{job_id}"
    return redirect_to(there if kind == "trigger" else back(request, there), flash)


@router.post("/jobs/{job_id}/pause")
async def pause(request: Request, the: The, who: Visitor, form: Form, job_id: UUID) -> Response:
    """Pause a job."""
    return await _act(request, the, who, "pause", job_id=job_id, form=form)


@router.post("/jobs/{job_id}/resume")
async def resume(request: Request, the: The, who: Visitor, form: Form, job_id: UUID) -> Response:
    """Resume a job."""
    return await _act(request, the, who, "resume", job_id=job_id, form=form)


@router.post("/jobs/{job_id}/trigger")
async def trigger(request: Request, the: The, who: Visitor, form: Form, job_id: UUID) -> Response:
    """Run a job once more, now."""
    return await _act(request, the, who, "trigger", job_id=job_id, form=form)


@router.post("/jobs/{job_id}/cancel")
async def cancel(request: Request, the: The, who: Visitor, form: Form, job_id: UUID) -> Response:
    """Cancel a job."""
    return await _act(request, the, who, "cancel", job_id=job_id, form=form)
