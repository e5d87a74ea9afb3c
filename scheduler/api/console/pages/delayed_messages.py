"""Delayed messages: what waits to come out, one of them whole, and taken back."""

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.list_filters import address
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, The, Visitor, may, redirect_to
from scheduler.api.identity import Permission
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.instants import parse_instant
from scheduler.postgres.delayed.operator_queries import DelayedFilter

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_LISTED = 50
_FILTERS = ("routing_key", "since")
_LONGEST = 255


@router.get("/delayed")
async def delayed_page(request: Request, the: The, who: Visitor, after: str | None = None) -> Response:
    """List messages that wait, those that come out next first; an id leads to its message."""
    given = {name: text.strip()[:_LONGEST] for name, text in request.query_params.items() if text.strip()}
    if named := given.get("id"):
        return redirect_to(f"/delayed/{quote(named, safe='')}")
    found = {name: given[name] for name in _FILTERS if name in given}
    page = await the.services.delayed.list(who, _wanted(found), _LISTED, after or None)
    return the.page(request, "delayed.html", {
        "who": who, "page": "delayed", "messages": page.items, "filtered": bool(found),
        "filters": {name: found.get(name, "") for name in _FILTERS},
        "next": address("/delayed", found, {"after": page.next}) if page.next else None,
        "first": address("/delayed", found) if after else None, "may_cancel": may(who, Permission.WRITE_ALL),
    })


@router.get("/delayed/{message_id}")
async def message_page(request: Request, the: The, who: Visitor, message_id: str) -> Response:
    """Show one message with its properties, headers and body."""
    message = await the.services.delayed.get(who, message_id)
    return the.page(request, "delayed_message.html", {
        "who": who, "page": "delayed", "message": message, "may_cancel": may(who, Permission.WRITE_ALL),
    })


@router.post("/delayed/{message_id}/cancel")
async def cancel(the: The, who: Visitor, form: Form, message_id: str) -> Response:  # noqa: ARG001 - checked
    """Take a message back."""
    message = await the.services.delayed.cancel(who, message_id)
    return redirect_to("/delayed", Flash(f"Cancelled: {message.routing_key}"))


def _wanted(found: dict[str, str]) -> DelayedFilter:
    since = None
    if "since" in found:
        try:
            since = parse_instant(found["since"])
        except ValueError as error:
            raise Unprocessable([Problem("since", str(error))]) from None
    return DelayedFilter(routing_key=found.get("routing_key"), since=since)
