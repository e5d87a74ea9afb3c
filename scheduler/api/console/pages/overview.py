"""The overview, and the page of processes."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console import overview_data as shown
from scheduler.api.console.site import ConsoleRoute, The, Visitor, dead_letter_count_for
from scheduler.api.identity import Permission, check

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)


@router.get("/")
async def overview_page(request: Request, the: The, who: Visitor) -> Response:
    """Answer whether reminders are on time."""
    check(who, Permission.READ)
    moment = await the.broadcaster.fresh()
    if who.tenant is None:
        history = the.broadcaster.history
        context = shown.overview(moment, history) | shown.charts(history)
    else:
        context = shown.tenant_overview(moment, await the.stats(who), who.tenant)
    return the.page(request, "overview.html", context | {
        "who": who, "page": "overview", "live": "/live?topic=overview", "charts": who.all_tenants,
        "letters": dead_letter_count_for(the, who),
    })


@router.get("/processes")
async def processes_page(request: Request, the: The, who: Visitor) -> Response:
    """Show who lives, and what each does now."""
    check(who, Permission.READ_ALL)
    context = shown.processes(await the.broadcaster.fresh())
    return the.page(request, "processes.html", context | {
        "who": who, "page": "processes", "live": "/live?topic=processes",
    })
