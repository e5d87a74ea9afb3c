"""Delayed messages: the list, single messages, and cancel."""

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.list_filters import address
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, SiteParam, Visitor, may, redirect_to
from scheduler.api.identity import Permission
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.instants import parse_instant
from scheduler.postgres.delayed.operator_queries import DelayedFilter

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_LISTED = 50
_FILTERS = ("routing_key", "since")
_MAX_LENGTH = 255


@router.get("/delayed")
async def delayed_page(request: Request, site: SiteParam, who: Visitor, after: str | None = None) -> Response:
    """List pending messages, the next due first; a query for an id redirects to its message."""
    query = {name: text.strip()[:_MAX_LENGTH] for name, text in request.query_params.items() if text.strip()}
    if message_id := query.get("id"):
        return redirect_to(f"/delayed/{quote(message_id, safe='')}")
    filters = {name: query[name] for name in _FILTERS if name in query}
    page = await site.services.delayed.list(who, _filter(filters), _LISTED, after or None)
    return site.page(request, "delayed.html", {
        "who": who, "page": "delayed", "messages": page.items, "filtered": bool(filters),
        "filters": {name: filters.get(name, "") for name in _FILTERS},
        "next": address("/delayed", filters, {"after": page.next}) if page.next else None,
        "first": address("/delayed", filters) if after else None, "may_cancel": may(who, Permission.WRITE_ALL),
    })


@router.get("/delayed/{message_id}")
async def message_page(request: Request, site: SiteParam, who: Visitor, message_id: str) -> Response:
    """Show one message with its properties, headers and body."""
    message = await site.services.delayed.get(who, message_id)
    return site.page(request, "delayed_message.html", {
        "who": who, "page": "delayed", "message": message, "may_cancel": may(who, Permission.WRITE_ALL),
    })


@router.post("/delayed/{message_id}/cancel")
async def cancel(site: SiteParam, who: Visitor, form: Form, message_id: str) -> Response:  # noqa: ARG001 - checked
    """Cancel a message."""
    message = await site.services.delayed.cancel(who, message_id)
    return redirect_to("/delayed", Flash(f"Cancelled: {message.routing_key}"))


def _filter(filters: dict[str, str]) -> DelayedFilter:
    since = None
    if "since" in filters:
        try:
            since = parse_instant(filters["since"])
        except ValueError as error:
            raise Unprocessable([Problem("since", str(error))]) from None
    return DelayedFilter(routing_key=filters.get("routing_key"), since=since)
