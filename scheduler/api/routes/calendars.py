"""/calendars: lists, one calendar, and its days."""

from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from scheduler.api.api_responses import Listed, body, json_response, page_response, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import Api, BaseQuery, PageQuery, Text, Who
from scheduler.views.calendars import CalendarView, DayView

router = APIRouter(prefix="/calendars", tags=["calendars"], route_class=DirectRoute)
_OWNER = "The owner; `*` for all tenants. Default: the token's tenant, or `default`."


class OwnerQuery(BaseQuery):
    """The owner of a calendar."""

    tenant: Text | None = Field(default=None, description=_OWNER)


class CalendarsQuery(PageQuery):
    """A page of calendars."""

    tenant: Text | None = Field(default=None, description=_OWNER)


class DaysQuery(OwnerQuery):
    """The days of a calendar."""

    first: date | None = Field(default=None, alias="from", description="Required.")
    last: date | None = Field(default=None, alias="to", description="Required; included, at most 366 days.")


@router.get("", response_model=Listed[CalendarView], responses=responses())
async def list_calendars(api: Api, who: Who, query: Annotated[CalendarsQuery, Query()]) -> Response:
    """List the calendars that a tenant can use, by name: its own and those of all tenants."""
    return page_response(await api.calendars.list(who, query.tenant, query.limit, query.after))


@router.get("/{name}", response_model=CalendarView, responses=responses(404))
async def get_calendar(api: Api, who: Who, name: str, query: Annotated[OwnerQuery, Query()]) -> Response:
    """Return one calendar; if the tenant has none with this name, that of all tenants."""
    return json_response(await api.calendars.get(who, name, query.tenant))


@router.put("/{name}", response_model=CalendarView, openapi_extra=body("Calendar"),
            responses={**responses(404, 408, 409, 413), 201: {"model": CalendarView}})
async def put_calendar(
    api: Api, who: Who, name: str, query: Annotated[OwnerQuery, Query()], request: Request
) -> Response:
    """Store a calendar, or replace it. Jobs that use it are planned again."""
    view, is_new = await api.calendars.put(who, name, query.tenant, await request.body())
    return json_response(view, 201 if is_new else 200)


@router.delete("/{name}", response_model=CalendarView, responses=responses(404, 409))
async def delete_calendar(api: Api, who: Who, name: str, query: Annotated[OwnerQuery, Query()]) -> Response:
    """Delete a calendar that no pending or paused job uses."""
    return json_response(await api.calendars.delete(who, name, query.tenant))


@router.get("/{name}/days", response_model=Listed[DayView], responses=responses(404))
async def list_days(api: Api, who: Who, name: str, query: Annotated[DaysQuery, Query()]) -> Response:
    """List each day from `from` to `to`, both included."""
    return page_response(await api.calendars.days(who, name, query.tenant, query.first, query.last))
