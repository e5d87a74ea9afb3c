"""/stats, /replicas and /audit: statistics, live processes and changes."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from scheduler.api.api_responses import Listed, json_response, page_response, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import Api, Auditor, AuditQuery, PageQuery, Who
from scheduler.postgres.audit import AuditFilter
from scheduler.views.job_types import JobTypeView
from scheduler.views.overview import AuditView, ReplicaView, RoleView, StatsView

router = APIRouter(tags=["overview"], route_class=DirectRoute)


@router.get("/stats", response_model=StatsView, responses=responses())
async def get_stats(api: Api, who: Who) -> Response:
    """Count jobs and runs by status, with the lag and success rate of recent ones."""
    return json_response(await api.reads.stats(who))


@router.get("/replicas", response_model=Listed[ReplicaView | RoleView], responses=responses())
async def list_replicas(api: Api, who: Who) -> Response:
    """List recently seen processes and workers; for a single tenant, counts and its offers."""
    return page_response(await api.reads.replicas(who))


@router.get("/types", response_model=Listed[JobTypeView], responses=responses())
async def list_types(api: Api, who: Who, query: Annotated[PageQuery, Query()]) -> Response:
    """List the job types that handlers of workers serve, and those of pending and paused jobs, by name."""
    return page_response(await api.reads.job_types(who, query.limit, query.after))


@router.get("/audit", response_model=Listed[AuditView], responses=responses())
async def list_audit(api: Api, who: Auditor, query: Annotated[AuditQuery, Query()]) -> Response:
    """List changes with their authors, newest first."""
    filters = AuditFilter(who=query.who, via=query.via, action=query.action, kind=query.kind, thing=query.id,
                         tenant=query.tenant, since=query.since, until=query.until)
    return page_response(await api.reads.audit(who, filters, query.limit, query.after))
