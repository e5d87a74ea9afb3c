"""/dead: the messages in scheduler_dead with their reasons, for admins of all tenants."""

from typing import Annotated, ClassVar
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import Response

from scheduler.api.api_responses import Listed, json_response, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import Api, DeadLetterAdmin, PageQuery
from scheduler.views.dead_letters import DeadView

router = APIRouter(prefix="/dead", tags=["dead letters"], route_class=DirectRoute)


class DeadListed(Listed[DeadView]):
    """A page of dead letters; `incomplete`, only if part of the queue was not read, says how much is missing."""

    optional: ClassVar[frozenset[str]] = frozenset({"incomplete"})

    incomplete: str | None = None


@router.get("", response_model=DeadListed, responses=responses())
async def list_dead(api: Api, who: DeadLetterAdmin, query: Annotated[PageQuery, Query()]) -> Response:
    """List dead letters, oldest first."""
    page = await api.dead.list(who, query.limit, query.after)
    listed = DeadListed.model_construct(items=list(page.items), next=page.next, incomplete=page.incomplete)
    return json_response(listed)


@router.get("/{id}", response_model=DeadView, responses=responses(404))
async def get_dead(api: Api, who: DeadLetterAdmin, id: UUID) -> Response:
    """Show one dead letter."""
    return json_response(await api.dead.get(who, id))


@router.post("/{id}/replay", response_model=DeadView, responses=responses(404, 409))
async def replay_dead(api: Api, who: DeadLetterAdmin, id: UUID) -> Response:
    """Publish a dead letter to its source exchange and remove it after the confirm. For a dead run: retry it."""
    return json_response(await api.dead.replay(who, id))


@router.delete("/{id}", response_model=DeadView, responses=responses(404))
async def drop_dead(api: Api, who: DeadLetterAdmin, id: UUID) -> Response:
    """Remove a dead letter permanently."""
    return json_response(await api.dead.drop(who, id))
