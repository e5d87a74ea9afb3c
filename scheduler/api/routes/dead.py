"""/dead: what lies in scheduler_dead, with its reason; for admins of all tenants."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import Response

from scheduler.api.api_responses import Listed, answer, listed, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import DeadLetterAdmin, PageQuery, Serve
from scheduler.views.dead_letters import DeadView

router = APIRouter(prefix="/dead", tags=["dead letters"], route_class=DirectRoute)


@router.get("", response_model=Listed[DeadView], responses=responses())
async def list_dead(serve: Serve, who: DeadLetterAdmin, query: Annotated[PageQuery, Query()]) -> Response:
    """List dead letters, oldest first."""
    return listed(await serve.dead.list(who, query.limit, query.after))


@router.get("/{id}", response_model=DeadView, responses=responses(404))
async def get_dead(serve: Serve, who: DeadLetterAdmin, id: UUID) -> Response:
    """Show one dead letter."""
    return answer(await serve.dead.get(who, id))


@router.post("/{id}/replay", response_model=DeadView, responses=responses(404, 409))
async def replay_dead(serve: Serve, who: DeadLetterAdmin, id: UUID) -> Response:
    """Send one again to where it came from, and remove it once that is confirmed; of a dead run: retry it."""
    return answer(await serve.dead.replay(who, id))


@router.delete("/{id}", response_model=DeadView, responses=responses(404))
async def drop_dead(serve: Serve, who: DeadLetterAdmin, id: UUID) -> Response:
    """Remove one for good."""
    return answer(await serve.dead.drop(who, id))
