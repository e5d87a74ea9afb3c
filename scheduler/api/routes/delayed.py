"""/delayed: pending delayed messages, for tokens of all tenants."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from scheduler.api.api_responses import Listed, json_response, page_response, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import Api, PageQuery, ReaderOfAll, RoutingKey, WriterOfAll
from scheduler.domain.message_base import Instant
from scheduler.postgres.delayed.operator_queries import DelayedFilter
from scheduler.views.delayed_messages import DelayedView, WholeDelayedView

router = APIRouter(prefix="/delayed", tags=["delayed messages"], route_class=DirectRoute)


class DelayedQuery(PageQuery):
    """A page of delayed messages."""

    routing_key: RoutingKey | None = None
    since: Instant | None = Field(default=None, description="Due at or after this instant.")


@router.get("", response_model=Listed[DelayedView], responses=responses())
async def list_delayed(api: Api, who: ReaderOfAll, query: Annotated[DelayedQuery, Query()]) -> Response:
    """List pending messages, the next due first."""
    filters = DelayedFilter(routing_key=query.routing_key, since=query.since)
    return page_response(await api.delayed.list(who, filters, query.limit, query.after))


@router.get("/{id}", response_model=WholeDelayedView, responses=responses(404))
async def get_delayed(api: Api, who: ReaderOfAll, id: str) -> Response:
    """Show a message with its properties, headers and body; its id is its message_id if that is a UUID."""
    return json_response(await api.delayed.get(who, id))


@router.delete("/{id}", response_model=WholeDelayedView, responses=responses(404))
async def cancel_delayed(api: Api, who: WriterOfAll, id: str) -> Response:
    """Cancel a message: it is not delivered."""
    return json_response(await api.delayed.cancel(who, id))
