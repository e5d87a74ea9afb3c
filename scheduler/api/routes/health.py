"""/health: the process lives; /health/detailed: each server, and what is wrong with it."""

from fastapi import APIRouter
from starlette.responses import Response

from scheduler.api.api_responses import answer, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.problems import ServiceUnavailable
from scheduler.api.requests import SECURED, Serve, Who
from scheduler.views.health import Alive, DetailedHealth

router = APIRouter(prefix="/health", tags=["health"], route_class=DirectRoute)


@router.get("", response_model=Alive)
async def health() -> Response:
    """Say that the process lives; no token is needed."""
    return answer(Alive())


@router.get("/detailed", response_model=DetailedHealth, responses=responses(), dependencies=SECURED)
async def detailed_health(serve: Serve, who: Who) -> Response:
    """Say of each server whether it answers."""
    found = await serve.reads.health(who)
    if found.status != "unavailable":
        return answer(found)
    beside = found.model_dump(mode="json", exclude={"status"})
    return ServiceUnavailable("There is no database; `servers` says what is wrong.").response(beside)
