"""The tenants: what each has open, due, late and failing; for tokens of all tenants."""

import re
from collections import Counter
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console import session
from scheduler.api.console.list_filters import address
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, SiteParam, Visitor, redirect_to
from scheduler.api.identity import Permission, check
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.tenants import TENANT_PATTERN
from scheduler.postgres.console_queries import MAX_OF_TENANT, MAX_TENANTS, TenantRow, list_tenants

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)


@router.get("/tenants")
async def tenants_page(request: Request, site: SiteParam, who: Visitor) -> Response:
    """List the tenants, those with late jobs first."""
    check(who, Permission.READ_ALL)
    rows = await site.services.database.search(list_tenants)
    failing: Counter[str] = Counter()
    for group in (await site.broadcaster.fresh()).failing:
        failing[str(group["tenant"])] += int(group["dead"])
    return site.page(request, "tenants.html", {
        "who": who, "page": "tenants", "tenants": [_row(row, failing[row.tenant]) for row in rows],
        "cut": len(rows) >= MAX_TENANTS, "most": MAX_OF_TENANT,
    })


@router.post("/tenants/act")
async def act_for(request: Request, who: Visitor, form: Form) -> Response:
    """Choose the tenant to act for, or all of them; only for tokens of all tenants."""
    if not (who.narrowed or who.all_tenants):
        check(who, Permission.READ_ALL)
    tenant = form.get("tenant", "").strip()
    if tenant and not re.fullmatch(TENANT_PATTERN, tenant):
        raise Unprocessable([Problem("tenant", "has 1 to 100 letters, digits, dots, underscores and hyphens")])
    response = redirect_to("/", Flash(f"You act for the tenant {tenant}" if tenant else "You act for all tenants"))
    session.choose_tenant(response, request, tenant or None)
    return response


def _row(row: TenantRow, dead: int) -> dict[str, Any]:
    name = row.tenant
    return {
        "tenant": name, "pending": row.pending, "paused": row.paused, "soon": row.soon, "late": row.late,
        "dead": dead, "jobs": address("/jobs", {"tenant": name}),
        "pending_jobs": address("/jobs", {"tenant": name, "status": "pending"}),
        "paused_jobs": address("/jobs", {"tenant": name, "status": "paused"}),
        "next_jobs": address("/jobs", {"tenant": name, "sort": "next"}),
        "late_jobs": address("/jobs", {"late": "1", "tenant": name}),
        "dead_runs": address("/runs", {"status": "dead", "tenant": name}),
        "pause": address("/jobs", {"tenant": name, "ask": "pause"}),
        "resume": address("/jobs", {"tenant": name, "ask": "resume"}),
    }
