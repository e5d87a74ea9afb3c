"""Dead letters: rejected messages and dead runs, with their reasons; replay and delete."""

from collections.abc import Mapping
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.formatting import count
from scheduler.api.console.list_filters import address, parse_filters
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, SiteParam, Visitor, redirect_to
from scheduler.api.dead_letters import MAX_AT_ONCE, DeadFilter
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.views.dead_letters import DeadView

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_LISTED = 50
_FILTERS = ("kind", "job_type", "q", "succeeded")


@router.get("/dead")
async def dead_page(request: Request, site: SiteParam, who: Visitor, after: str | None = None) -> Response:
    """List dead letters."""
    filters = parse_filters(request.query_params, _FILTERS)
    page = await site.services.dead.list(who, _LISTED, after or None, _dead_filter(filters))
    letters = [letter.model_dump() | {"event_id": _event_id(letter)} for letter in page.items]
    event_ids = [str(letter["event_id"]) for letter in letters if letter["event_id"]]
    return site.page(request, "dead.html", {
        "who": who, "page": "dead", "letters": letters, "filters": dict.fromkeys(_FILTERS) | filters,
        "filtered": bool(filters), "matched": page.matched, "most": MAX_AT_ONCE,
        "names": await site.services.reads.run_names(event_ids),
        "statuses": await site.services.reads.run_statuses(event_ids), "incomplete": page.incomplete,
        "next": address("/dead", filters, {"after": page.next}) if page.next else None,
        "first": address("/dead", filters) if after else None,
    })


def _dead_filter(filters: Mapping[str, str]) -> DeadFilter:
    """Return the filter for the service. Raises Unprocessable for an unknown kind."""
    if filters.get("kind") not in (None, "run", "message"):
        raise Unprocessable([Problem("kind", "must be run or message")])
    return DeadFilter(kind=filters.get("kind"), job_type=filters.get("job_type"), q=filters.get("q"),
                      succeeded=bool(filters.get("succeeded")))


def _event_id(letter: DeadView) -> str | None:
    """Return the run of a dead run's letter."""
    if letter.kind != "run" or not isinstance(letter.body, dict):
        return None
    try:
        return str(UUID(str(letter.body.get("event_id"))))
    except ValueError:
        return None


@router.post("/dead/replay")
async def replay_all(site: SiteParam, who: Visitor, form: Form) -> Response:
    """Replay all matching letters."""
    filters = parse_filters(form, _FILTERS)
    number, problems = await site.services.dead.replay_all(who, _dead_filter(filters))
    text = f"{count(number, 'letter')} retried"
    if problems:
        text += f"; {count(len(problems), 'letter')} stayed: {problems[0]}"
    return redirect_to(address("/dead", filters), Flash(text, bad=bool(problems)))


@router.post("/dead/drop")
async def drop_all(site: SiteParam, who: Visitor, form: Form) -> Response:
    """Delete all matching letters permanently."""
    filters = parse_filters(form, _FILTERS)
    number = await site.services.dead.drop_all(who, _dead_filter(filters))
    return redirect_to(address("/dead", filters), Flash(f"{count(number, 'letter')} deleted"))


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
