"""The list of runs, and one run."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console import bulk_actions
from scheduler.api.console.formatting import count
from scheduler.api.console.list_filters import RUN_FILTERS, address, filters, in_words, live_address, wanted_runs
from scheduler.api.console.run_summary import run_context
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, The, Visitor, may, redirect_to
from scheduler.api.identity import Identity, Permission
from scheduler.api.problems import NotFound, Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.runs.run import Run
from scheduler.views.base import stored
from scheduler.views.jobs import JobView
from scheduler.views.runs import RunView, whole_run_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_RETRIED = ("dead", "cancelled")


@router.get("/runs")
async def runs_page(request: Request, the: The, who: Visitor) -> Response:
    """List runs."""
    given = dict(request.query_params)
    found = filters(given, RUN_FILTERS, "runs")
    asked, problems = wanted_runs(found)
    ask = None
    if given.get("ask") == "retry" and found.get("status") in _RETRIED and may(who, Permission.WRITE):
        ask = await bulk_actions.confirm_runs(the.services, who, asked, found)
    page = await the.services.reads.runs(who, asked, after=given.get("after") or None)
    context = {
        "who": who,
        "page": "runs",
        "runs": page.items,
        "filters": dict.fromkeys(RUN_FILTERS) | found,
        "filtered": bool(found),
        "said": in_words(found),
        "here": address("/runs", found),
        "problems": problems,
        "ask": ask,
        "show_job": True,
        "next": address("/runs", found, {"after": page.next}) if page.next else None,
        "first": address("/runs", found) if given.get("after") else None,
        "live": live_address("runs", found, newest=not given.get("after")),
        "last": page.next or "",
    }
    return the.page(request, "runs.html", context)


@router.post("/runs/retry")
async def retry_all(the: The, who: Visitor, form: Form) -> Response:
    """Give all runs that match another chance."""
    found = filters(form, RUN_FILTERS, "runs")
    asked, problems = wanted_runs(found)
    if problems or found.get("status") not in _RETRIED:
        raise Unprocessable([Problem("status", "must be dead or cancelled: only those runs can be retried")])
    number = await the.services.actions.all_runs(who, asked)
    return redirect_to(address("/runs", found), Flash(f"{count(number, 'run')} retried"))


@router.get("/runs/{event_id}")
async def run_page(request: Request, the: The, who: Visitor, event_id: UUID) -> Response:
    """Show one run with its attempts; while it is open the page is live."""
    row = await the.services.reads.run_row(who, event_id)
    run = whole_run_view(row)
    live = f"/live?topic=run:{event_id}" if run.status in ("delivered", "running", "waiting", "dead") else None
    context = run_context(run, await job_of(the, who, run), datetime.now(UTC))
    return the.page(request, "run.html", context | {
        "who": who, "page": "runs", "live": live, "payload": _payload(row),
    })


async def job_of(the: Site, who: Identity, run: RunView) -> JobView | None:
    """Return the job that a run is of, None where it was pruned."""
    try:
        return await the.services.reads.job(who, run.job_id)
    except NotFound:
        return None


def _payload(run: Run) -> Any:
    """Return what the run's event carries, None where nothing is kept of it; one nested too deeply is whole."""
    event = stored(run.occurrence.event) if run.occurrence and run.occurrence.event else None
    return event.get("payload") if isinstance(event, dict) else event


@router.post("/runs/{event_id}/retry")
async def retry(request: Request, the: The, who: Visitor, form: Form, event_id: UUID) -> Response:  # noqa: ARG001 - checked
    """Give a run another chance."""
    await the.services.actions.retry(who, event_id)
    return redirect_to(f"/runs/{event_id}", Flash("The run is retried now"))
