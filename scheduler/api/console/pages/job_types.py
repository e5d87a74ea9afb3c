"""Parts of the job form about types: suggestions, and inputs for the payload."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.payload_inputs import payload_inputs
from scheduler.api.console.site import ConsoleRoute, SiteParam, Visitor
from scheduler.api.identity import Permission, check
from scheduler.postgres.console_queries import list_tenants

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_SUGGESTED = 200


@router.get("/jobs/types")
async def types_part(request: Request, site: SiteParam, who: Visitor) -> Response:
    """Return the types that handlers serve or jobs use, as suggestions."""
    page = await site.services.reads.job_types(who, _SUGGESTED, None)
    return site.part(request, "job_types", who, {"types": page.items})


@router.get("/jobs/tenants")
async def tenants_part(request: Request, site: SiteParam, who: Visitor) -> Response:
    """Return the tenants that have jobs, as suggestions."""
    check(who, Permission.READ_ALL)
    rows = await site.services.database.search(list_tenants)
    return site.part(request, "tenant_names", who, {"tenants": sorted(row.tenant for row in rows)})


@router.get("/jobs/types/payload")
async def payload_part(request: Request, site: SiteParam, who: Visitor, job_type: str = "") -> Response:
    """Return inputs for the payload of a type, if its handlers announce their parameters."""
    page = await site.services.reads.job_types(who, 10_000, None)
    view = next((item for item in page.items if item.job_type == job_type), None)
    inputs = payload_inputs(view.parameters if view else None)
    return site.part(request, "payload_inputs", who, {"view": view, "inputs": inputs})
