"""The overview and the processes page."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console import overview_data
from scheduler.api.console.site import ConsoleRoute, SiteParam, Visitor, dead_letter_count_for
from scheduler.api.identity import Permission, check

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)


@router.get("/")
async def overview_page(request: Request, site: SiteParam, who: Visitor) -> Response:
    """Show whether reminders are on time."""
    check(who, Permission.READ)
    snapshot = await site.broadcaster.fresh()
    if who.tenant is None:
        history = site.broadcaster.history
        context = overview_data.overview(snapshot, history) | overview_data.charts(history)
    else:
        context = overview_data.tenant_overview(snapshot, await site.stats(who), who.tenant)
    return site.page(request, "overview.html", context | {
        "who": who, "page": "overview", "live": "/live?topic=overview", "charts": who.all_tenants,
        "letters": dead_letter_count_for(site, who),
    })


@router.get("/processes")
async def processes_page(request: Request, site: SiteParam, who: Visitor) -> Response:
    """Show the live processes and their current work."""
    check(who, Permission.READ_ALL)
    context = overview_data.processes(await site.broadcaster.fresh())
    return site.page(request, "processes.html", context | {
        "who": who, "page": "processes", "live": "/live?topic=processes",
    })
