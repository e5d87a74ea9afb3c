"""One job: what it is, how it fared, when it runs, and what can be done with it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console import strips, words
from scheduler.api.console.pages.audit import entries
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, The, Visitor, back, may, to
from scheduler.api.console.year import WEEKS_BACK, Year, year
from scheduler.api.identity import Identity, Need
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.recurrence import Schedule, compile_schedule
from scheduler.postgres.audit import AuditFilter
from scheduler.postgres.console import outcomes_of_job
from scheduler.postgres.jobs.lists import JobRow
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.jobs import JobView, job_view
from scheduler.views.occurrences import occurrences
from scheduler.views.runs import RunView

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_RUNS_LISTED = 15
_AHEAD = 10
_CHANGES_LISTED = 20
_DONE = {"pause": "Paused", "resume": "Resumed", "trigger": "One extra run is on its way", "cancel": "Cancelled"}
_UNDO = {"pause": "resume", "resume": "pause"}
_STANDING = {
    "paused": "Paused: nothing goes out until it is resumed.", "cancelled": "Cancelled: nothing more goes out.",
    "done": "Done: every occurrence was emitted or passed over.", "pending": "It has no next run.",
}


@router.get("/jobs/{job_id}")
async def job_page(request: Request, the: The, who: Visitor, job_id: UUID) -> Response:
    """Show one job."""
    row = await the.services.reads.job_row(who, job_id)
    job = job_view(row)
    runs, audit, calendar = await asyncio.gather(
        the.services.reads.runs(who, RunFilter(job_id=str(job_id)), strips.BARS), _audit(the, who, job_id),
        _year(the, row, job),
    )
    now = datetime.now(UTC)
    ahead = occurrences(row, now, count=_AHEAD, start=None, end=None) if job.status == "pending" else []
    context = {
        "who": who, "page": "jobs", "job": job, "show_job": False, "runs": runs.items[:_RUNS_LISTED],
        "more_runs": len(runs.items) > _RUNS_LISTED, "audit": audit, "occurrences": ahead, "year": calendar,
        **_words(job), **_pictures(job, list(runs.items)),
    }
    return the.page(request, "job.html", context)


async def _audit(the: Site, who: Identity, job_id: UUID) -> list[dict[str, Any]] | None:
    """Return the newest changes of a job, None to those who may not see them."""
    if not may(who, Need.AUDIT):
        return None
    page = await the.services.reads.audit(who, AuditFilter(kind="job", thing=str(job_id)), _CHANGES_LISTED)
    return entries(page.items)


def _words(job: JobView) -> dict[str, Any]:
    """Return what is told of a job in sentences."""
    late = job.last_emitted_at - job.last_due_at if job.last_emitted_at and job.last_due_at else timedelta()
    return {"written": job.rrule or job.cron or "", "standing": _STANDING[job.status], "policy": _policy(job),
            "late": words.span(max(0.0, late.total_seconds()))}


def _policy(job: JobView) -> str:
    run = job.run
    if run is None:
        return ""
    if run.max_attempts == 1:
        return f"it is not tried again; an attempt may take {words.span(run.timeout)}"
    grows = {"exponential": ", doubling", "linear": ", growing", "fixed": ""}.get(str(run.backoff), "")
    first = run.delay if isinstance(run.backoff, str) else run.backoff[0]
    return (f"tried up to {run.max_attempts} times, first after {words.span(first)}{grows}; "
            f"an attempt may take {words.span(run.timeout)}")


def _pictures(job: JobView, runs: list[RunView]) -> dict[str, Any]:
    known = [run.model_dump() for run in runs]
    late = strips.lateness(known)
    latest = max(late, key=lambda each: each[1])[2].removeprefix("began ").split(" after")[0] if late else ""
    return {"bars": strips.strip(known, job.timezone), "late_bars": late, "latest": latest}


async def _year(the: Site, row: JobRow, job: JobView) -> Year:
    now = datetime.now(UTC)
    since = now - timedelta(weeks=WEEKS_BACK + 1)
    past = await the.services.database.read(lambda at: outcomes_of_job(at, str(job.id), job.timezone, since))
    return year(past, _coming(row), job.timezone, now)


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
    return to(back(request, f"/jobs/{job_id}"), flash)


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
