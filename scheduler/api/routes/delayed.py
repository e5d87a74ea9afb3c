"""/delayed: messages that wait to come out; for tokens of all tenants."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from scheduler.api.api_responses import Listed, answer, listed, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import PageQuery, ReaderOfAll, RoutingKey, Serve, WriterOfAll
from scheduler.domain.messages.base import Instant
from scheduler.postgres.delayed.operator_queries import DelayedFilter
from scheduler.views.delayed_messages import DelayedView, WholeDelayedView

router = APIRouter(prefix="/delayed", tags=["delayed messages"], route_class=DirectRoute)


class DelayedQuery(PageQuery):
    """A page of delayed messages."""

    routing_key: RoutingKey | None = None
    since: Instant | None = Field(default=None, description="Due then or later.")


@router.get("", response_model=Listed[DelayedView], responses=responses())
async def list_delayed(serve: Serve, who: ReaderOfAll, query: Annotated[DelayedQuery, Query()]) -> Response:
    """List messages that wait, those that come out next first."""
    wanted = DelayedFilter(routing_key=query.routing_key, since=query.since)
    return listed(await serve.delayed.list(who, wanted, query.limit, query.after))


@router.get("/{id}", response_model=WholeDelayedView, responses=responses(404))
async def get_delayed(serve: Serve, who: ReaderOfAll, id: str) -> Response:
    """Show one with its properties, headers and body; its id is its message_id where that is a UUID."""
    return answer(await serve.delayed.get(who, id))


@router.delete("/{id}", response_model=WholeDelayedView, responses=responses(404))
async def cancel_delayed(serve: Serve, who: WriterOfAll, id: str) -> Response:
    """Take one back: it does not come out."""
    return answer(await serve.delayed.cancel(who, id))
