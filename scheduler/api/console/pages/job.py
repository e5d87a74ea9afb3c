"""One job: its definition, runs, next occurrences and actions."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.actions import ActionNote
from scheduler.api.console import run_charts
from scheduler.api.console.copied_request import copied_request
from scheduler.api.console.job_summary import job_context
from scheduler.api.console.pages.audit import audit_rows
from scheduler.api.console.pages.bulk import MAX_REASON
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, SiteParam, Visitor, back, may, redirect_to
from scheduler.api.console.year_calendar import WEEKS_BACK, CalendarYear, build_year
from scheduler.api.console.year_plan import plan_year
from scheduler.api.identity import Identity, Permission
from scheduler.domain.calendars import EffectiveCalendar
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.messages import JOB_VERBS, ScheduleTrigger
from scheduler.domain.messages.commands import JobVerb
from scheduler.postgres.audit import StatusChange
from scheduler.postgres.console_queries import job_outcomes
from scheduler.postgres.jobs.lists import JobRow
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.jobs import JobView, job_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_CHANGES_LISTED = 20


@router.get("/jobs/{job_id}")
async def job_page(request: Request, site: SiteParam, who: Visitor, job_id: UUID) -> Response:
    """Show one job."""
    row = await site.services.reads.job_row(who, job_id)
    job = job_view(row)
    effective = await site.services.reads.calendar_of(row)
    runs, audit, calendar, pause = await asyncio.gather(
        site.services.reads.runs(who, RunFilter(job_id=str(job_id)), run_charts.BARS), _audit(site, who, job_id),
        _year(site, row, job, effective), _pause(site, who, row),
    )
    context = job_context(row, runs.items, datetime.now(UTC), effective)
    return site.page(request, "job.html", context | {
        "who": who, "page": "jobs", "live": f"/live?topic=job:{job_id}", "audit": audit, "year": calendar,
        "pause": pause, "copies": await site.services.compute.run(lambda: copied_request(row.job)),
    })


async def _audit(site: Site, who: Identity, job_id: UUID) -> list[dict[str, Any]] | None:
    """Return the newest changes of a job, None if the visitor may not see them."""
    if not may(who, Permission.WRITE):
        return None
    return audit_rows(await site.services.reads.job_audit(who, job_id, _CHANGES_LISTED))


async def _pause(site: Site, who: Identity, row: JobRow) -> StatusChange | None:
    """Return the change that paused a paused job; None if it is unknown."""
    if row.job.status is not JobStatus.PAUSED:
        return None
    changes = await site.services.reads.status_changes(who, row.job, datetime.now(UTC) + timedelta(minutes=1))
    return changes[0] if changes and changes[0].status == "paused" else None


async def _year(site: Site, row: JobRow, job: JobView, effective: EffectiveCalendar | None) -> CalendarYear:
    now = datetime.now(UTC)
    since = now - timedelta(weeks=WEEKS_BACK + 1)
    past = await site.services.database.read(lambda at: job_outcomes(at, str(job.id), job.timezone, since))
    return await site.services.compute.run(
        lambda: build_year(past, plan_year(row, effective, now), job.timezone, now)
    )


def _add_verb(verb: str, model: type[JobVerb]) -> None:
    async def act(request: Request, site: SiteParam, who: Visitor, form: Form, job_id: UUID) -> Response:
        return await _act(request, site, who, model, job_id=job_id, form=form)

    router.add_api_route(f"/jobs/{{job_id}}/{verb}", act, methods=["POST"])


for _verb, _model in JOB_VERBS.items():
    _add_verb(_verb, _model)


async def _act(
    request: Request, site: Site, who: Identity, verb: type[JobVerb], *, job_id: UUID, form: dict[str, str]
) -> Response:
    """Apply a verb to a job; return its row, or redirect with a message."""
    note = ActionNote(reason=form.get("reason", "").strip()[:MAX_REASON] or None)
    result = await site.services.actions.command(who, verb.kind, job_id, note=note)
    job = job_view(result.row)
    if form.get("row") and request.headers.get("hx-request"):
        return site.part(request, "job_row", who, {"job": job})
    page = f"/jobs/{job_id}"
    flash = _flash(verb, job, page)
    # The job's page shows the extra run.
    shown = page if verb is ScheduleTrigger and not form.get("stay") else back(request, page)
    return redirect_to(shown, flash)


@router.post("/jobs/{job_id}/purge")
async def purge(site: SiteParam, who: Visitor, form: Form, job_id: UUID) -> Response:  # noqa: ARG001 - checked
    """Erase a job."""
    job = job_view(await site.services.reads.job_row(who, job_id))
    await site.services.actions.purge(who, job_id)
    return redirect_to("/jobs", Flash(f"Purged: {job.name or job.job_type}"))


def _flash(verb: type[JobVerb], job: JobView, page: str) -> Flash:
    name = job.name or job.job_type
    if verb is ScheduleTrigger and job.status == "paused":
        message = f"{name} is paused: the extra run starts when the job is resumed"
        return Flash(message, then=f"{page}/resume", label="Resume")
    return Flash(f"{verb.done.capitalize()}: {name}", then=None if verb.undo is None else f"{page}/{verb.undo}")
