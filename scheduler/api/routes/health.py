"""/health: the process is alive; /health/detailed: the state of the whole sidecar."""

from fastapi import APIRouter
from starlette.responses import Response

from scheduler.api.api_responses import json_response, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import SECURED, Api, Who
from scheduler.views.health import Alive, DetailedHealth

router = APIRouter(prefix="/health", tags=["health"], route_class=DirectRoute)
_RETRY = {"Retry-After": "5"}


@router.get("", response_model=Alive)
async def health() -> Response:
    """Confirm that the process is alive; no token is needed."""
    return json_response(Alive())


@router.get("/detailed", response_model=DetailedHealth, dependencies=SECURED,
            responses={**responses(), 503: {"model": DetailedHealth, "description": "Degraded or down."}})
async def detailed_health(api: Api, who: Who) -> Response:
    """Show the servers, live processes and backlog; 503 unless all are healthy."""
    health = await api.reads.health(who)
    return json_response(health) if health.status == "ok" else json_response(health, 503, _RETRY)
