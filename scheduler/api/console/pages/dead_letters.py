"""Dead letters: rejected messages and dead runs, with their reasons; replay and delete."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.list_filters import address
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, SiteParam, Visitor, redirect_to
from scheduler.views.dead_letters import DeadView

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_LISTED = 50


@router.get("/dead")
async def dead_page(request: Request, site: SiteParam, who: Visitor, after: str | None = None) -> Response:
    """List dead letters."""
    page = await site.services.dead.list(who, _LISTED, after or None)
    return site.page(request, "dead.html", {
        "who": who, "page": "dead", "letters": [_letter_context(letter) for letter in page.items],
        "next": address("/dead", {"after": page.next}) if page.next else None, "first": "/dead" if after else None,
        "incomplete": page.incomplete,
    })


def _letter_context(letter: DeadView) -> dict[str, Any]:
    """Return a letter with the id of its run, if it has one."""
    event_id = None
    if letter.kind == "run" and isinstance(letter.body, dict):
        try:
            event_id = str(UUID(str(letter.body.get("event_id"))))
        except ValueError:
            event_id = None
    return letter.model_dump() | {"event_id": event_id}


@router.post("/dead/{letter_id}/replay")
async def replay(site: SiteParam, who: Visitor, form: Form, letter_id: UUID) -> Response:  # noqa: ARG001 - checked
    """Replay a letter to its source exchange."""
    letter = await site.services.dead.replay(who, letter_id)
    message = "The run is retried with new attempts" if letter.kind == "run" else f"Replayed: {letter.routing_key}"
    return redirect_to("/dead", Flash(message))


@router.post("/dead/{letter_id}/drop")
async def drop(site: SiteParam, who: Visitor, form: Form, letter_id: UUID) -> Response:  # noqa: ARG001 - checked
    """Delete a letter permanently."""
    letter = await site.services.dead.drop(who, letter_id)
    return redirect_to("/dead", Flash(f"Deleted: {letter.routing_key}"))
