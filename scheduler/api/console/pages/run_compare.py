"""Two runs of a job side by side."""

from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.run_comparison import compare_runs
from scheduler.api.console.site import ConsoleRoute, Site, SiteParam, Visitor
from scheduler.api.identity import Identity
from scheduler.api.problems import NotFound, Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.runs.run import Run
from scheduler.postgres.runs.lists import RunFilter

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_OTHERS = 20


@router.get("/runs/{event_id}/compare")
async def compare_page(request: Request, site: SiteParam, who: Visitor, event_id: UUID) -> Response:
    """Compare a run with another one, by default the last success before it."""
    run = await site.services.reads.run_row(who, event_id)
    about = run.known_occurrence
    chosen = request.query_params.get("with", "")
    other = await _chosen(site, who, chosen) if chosen else await _last_success(site, who, run)
    if other is not None and other.known_occurrence.job_id != about.job_id:
        raise Unprocessable([Problem("with", "must be a run of the same job")])
    recent = await site.services.reads.runs(who, RunFilter(job_id=about.job_id), _OTHERS)
    rows = await site.services.compute.run(lambda: compare_runs(other, run)) if other is not None else []
    names = await site.services.reads.run_names([str(event_id)])
    return site.page(request, "run_compare.html", {
        "who": who, "page": "runs", "run": run, "other": other, "rows": rows, "job_id": about.job_id,
        "name": names.get(str(event_id)) or about.job_type,
        "others": [other_run for other_run in recent.items if str(other_run.event_id) != run.event_id],
    })


async def _chosen(site: Site, who: Identity, text: str) -> Run:
    try:
        return await site.services.reads.run_row(who, UUID(text))
    except ValueError:
        raise NotFound(f"No run has the event_id {text[:40]}.") from None


async def _last_success(site: Site, who: Identity, run: Run) -> Run | None:
    """Return the last run before this one that succeeded; otherwise the one before; None if there is none."""
    about = run.known_occurrence
    for status in ("succeeded", None):
        wanted = RunFilter(job_id=about.job_id, status=status, until=about.due_at)
        found = (await site.services.reads.runs(who, wanted, 1)).items
        if found:
            return await site.services.reads.run_row(who, found[0].event_id)
    return None
