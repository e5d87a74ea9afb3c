"""The list of runs, and single runs."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console import bulk_actions
from scheduler.api.console.find_anything import find
from scheduler.api.console.formatting import count
from scheduler.api.console.list_filters import (
    RUN_FILTERS,
    address,
    describe_filters,
    live_address,
    parse_filters,
    run_filter,
)
from scheduler.api.console.pages.bulk import note_of
from scheduler.api.console.run_summary import run_context
from scheduler.api.console.sent_request import sent_request
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, SiteParam, Visitor, may, redirect_to
from scheduler.api.identity import Identity, Permission
from scheduler.api.problems import NotFound, Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.runs.run import Run
from scheduler.views.base import Page, stored
from scheduler.views.jobs import JobView
from scheduler.views.runs import RunView, whole_run_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_RETRIED = ("dead", "cancelled")


@router.get("/runs")
async def runs_page(request: Request, site: SiteParam, who: Visitor) -> Response:
    """List runs."""
    query = dict(request.query_params)
    filters = parse_filters(query, RUN_FILTERS)
    parsed, problems = run_filter(filters)
    ask = None
    retried = not problems and filters.get("status") in _RETRIED
    if query.get("ask") == "retry" and retried and may(who, Permission.WRITE):
        ask = await bulk_actions.confirm_runs(site.services, who, parsed, filters)
    if query.get("q", "").strip():
        return await _found(site, who, query["q"].strip())
    page: Page[RunView] = Page([])
    if not problems:
        page = await site.services.reads.runs(who, parsed, after=query.get("after") or None)
    names = await site.services.reads.run_names([str(run.event_id) for run in page.items])
    context = {
        "who": who,
        "page": "runs",
        "runs": page.items,
        "names": names,
        "filters": dict.fromkeys(RUN_FILTERS) | filters,
        "filtered": bool(filters.keys() - {"zone"}),
        "description": describe_filters(filters),
        "here": address("/runs", filters),
        "problems": problems,
        "ask": ask,
        "show_job": True,
        "next": address("/runs", filters, {"after": page.next}) if page.next else None,
        "first": address("/runs", filters) if query.get("after") else None,
        "live": None if problems else live_address("runs", filters, newest=not query.get("after")),
        "last": page.next or "",
    }
    return site.page(request, "runs.html", context, 422 if problems else 200)


async def _found(site: Site, who: Identity, text: str) -> Response:
    """Open the run or the runs of the job that a search names; otherwise search everything."""
    matches = await find(site, who, text)
    runs = [match for match in matches if match.kind == "run"]
    jobs = [match for match in matches if match.kind == "job"]
    if len(runs) == 1:
        return redirect_to(runs[0].href)
    if len(jobs) == 1:
        return redirect_to(address("/runs", {"job_id": jobs[0].id}))
    return redirect_to(address("/find", {"q": text, "runs": "1"}))


@router.post("/runs/retry")
async def retry_all(site: SiteParam, who: Visitor, form: Form) -> Response:
    """Retry all matching runs."""
    filters = parse_filters(form, RUN_FILTERS)
    parsed, problems = run_filter(filters)
    if problems or filters.get("status") not in _RETRIED:
        raise Unprocessable([Problem("status", "must be dead or cancelled: only those runs can be retried")])
    note = note_of(form)
    number = await site.services.actions.all_runs(who, parsed, note=note)
    page = f"/bulk/{note.batch}" if number else address("/runs", filters)
    return redirect_to(page, Flash(f"{count(number, 'run')} retried"))


@router.get("/runs/{event_id}")
async def run_page(request: Request, site: SiteParam, who: Visitor, event_id: UUID) -> Response:
    """Show one run with its attempts; while it is open the page is live."""
    row = await site.services.reads.run_row(who, event_id)
    run = whole_run_view(row)
    live = f"/live?topic=run:{event_id}" if run.status in ("delivered", "running", "waiting", "dead") else None
    context = run_context(run, await job_of(site, who, run), datetime.now(UTC))
    return site.page(request, "run.html", context | {
        "who": who, "page": "runs", "live": live, "payload": _payload(row),
        "request_sent": sent_request(_event(row)),
    })


async def job_of(site: Site, who: Identity, run: RunView) -> JobView | None:
    """Return the job of a run, None if it was pruned."""
    try:
        return await site.services.reads.job(who, run.job_id)
    except NotFound:
        return None


def _event(run: Run) -> Any:
    """Return the run's event, None if it is not stored."""
    return stored(run.occurrence.event) if run.occurrence and run.occurrence.event else None


def _payload(run: Run) -> Any:
    """Return the payload of the run's event, None if it is not stored; the whole event if nested too deeply."""
    event = _event(run)
    return event.get("payload") if isinstance(event, dict) else event


@router.post("/runs/{event_id}/retry")
async def retry(request: Request, site: SiteParam, who: Visitor, form: Form, event_id: UUID) -> Response:  # noqa: ARG001 - checked
    """Retry a run."""
    await site.services.actions.retry(who, event_id)
    return redirect_to(f"/runs/{event_id}", Flash("The run is retried now"))


@router.post("/runs/{event_id}/cancel")
async def cancel(request: Request, site: SiteParam, who: Visitor, form: Form, event_id: UUID) -> Response:  # noqa: ARG001 - checked
    """Cancel an open run."""
    await site.services.actions.cancel_run(who, event_id)
    return redirect_to(f"/runs/{event_id}", Flash("The run is cancelled"))
