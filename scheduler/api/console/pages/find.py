"""The results of the search box in the header."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.find_anything import LONGEST, MOST, find
from scheduler.api.console.site import ConsoleRoute, SiteParam, Visitor, redirect_to

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)


@router.get("/find")
async def find_page(request: Request, site: SiteParam, who: Visitor, q: str = "", runs: str = "") -> Response:
    """Show the matches; redirect to a single match."""
    matches = await find(site, who, q)
    if len(matches) == 1 and not runs:
        return redirect_to(matches[0].href)
    return site.page(request, "find.html", {
        "who": who, "page": "find", "q": q[:LONGEST], "matches": matches, "most": MOST, "runs": bool(runs),
        "kinds": [("run", "Runs"), ("job", "Jobs"), ("type", "Types"), ("calendar", "Calendars")],
    })
