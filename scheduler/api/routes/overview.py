"""/stats, /replicas and /audit: the whole at a glance, who is at work, and who changed what."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from scheduler.api.api_responses import Listed, answer, listed, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import Auditor, AuditQuery, Serve, Who
from scheduler.postgres.audit import AuditFilter
from scheduler.views.overview import AuditView, ReplicaView, RoleView, StatsView

router = APIRouter(tags=["overview"], route_class=DirectRoute)


@router.get("/stats", response_model=StatsView, responses=responses())
async def get_stats(serve: Serve, who: Who) -> Response:
    """Count jobs and runs by status, and tell how the newest fared."""
    return answer(await serve.reads.stats(who))


@router.get("/replicas", response_model=Listed[ReplicaView | RoleView], responses=responses())
async def list_replicas(serve: Serve, who: Who) -> Response:
    """List the processes and workers that were heard of lately; for one tenant, counts and its offers."""
    return listed(await serve.reads.replicas(who))


@router.get("/audit", response_model=Listed[AuditView], responses=responses())
async def list_audit(serve: Serve, who: Auditor, query: Annotated[AuditQuery, Query()]) -> Response:
    """List who changed what, newest first."""
    wanted = AuditFilter(who=query.who, via=query.via, action=query.action, kind=query.kind, thing=query.id,
                         tenant=query.tenant, since=query.since, until=query.until)
    return listed(await serve.reads.audit(who, wanted, query.limit, query.after))
