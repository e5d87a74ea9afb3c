"""The overview, the page of processes, and the stream that keeps them and others live."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from scheduler.api.console import overview as shown
from scheduler.api.console import session
from scheduler.api.console.live import Moment
from scheduler.api.console.run_story import run_context
from scheduler.api.console.site import ConsoleRoute, Site, The, Visitor, whole_rights
from scheduler.api.identity import Identity, Need, check
from scheduler.api.problems import ApiError, Away, NotFound

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_OVERVIEW = ("verdict", "tiles", "failing", "upcoming", "roles")
_MOST_LISTENERS = 500  # each holds a connection
_JUDGED_SECONDS = 30.0  # a stream ends with its token
_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get("/")
async def overview_page(request: Request, the: The, who: Visitor) -> Response:
    """Answer whether reminders are on time."""
    check(who, Need.READ)
    moment = await the.broadcaster.fresh()
    history = the.broadcaster.history
    context = shown.overview(moment, history, who.tenant) | shown.charts(history)
    return the.page(request, "overview.html", context | {
        "who": who, "page": "overview", "live": "overview", "charts": who.all_tenants,
    })


@router.get("/processes")
async def processes_page(request: Request, the: The, who: Visitor) -> Response:
    """Show who lives, and what each does now."""
    check(who, Need.READ_ALL)
    context = shown.processes(await the.broadcaster.fresh())
    return the.page(request, "processes.html", context | {"who": who, "page": "processes", "live": "processes"})


@router.get("/live")
async def live(request: Request, the: The, who: Visitor, topic: str = "overview") -> Response:
    """Stream what changes on a page: parts of it as markup, and samples for its charts."""
    check(who, Need.READ_ALL if topic == "processes" else Need.READ)
    run_id = None
    if topic.startswith("run:"):
        try:
            run_id = str((await the.services.reads.run(who, UUID(topic[4:]))).event_id)
        except ValueError:
            raise NotFound("There is no such run.") from None
    if the.broadcaster.listeners >= _MOST_LISTENERS:
        raise Away("Too many pages are live already; this one stays as it was loaded.")
    stream = _messages(the, who, topic, run_id, session.token_of(request) or "")
    return StreamingResponse(stream, media_type="text/event-stream", headers=_STREAM)


async def _messages(the: Site, who: Identity, topic: str, run_id: str | None, token: str) -> AsyncIterator[str]:
    """Yield a message whenever a part of the page has changed, as long as the token is good."""
    sent: dict[str, str] = {}
    csrf, judged_at = session.form_token(token), time.monotonic()
    yield "retry: 2000\n\n"
    with the.broadcaster.watching(run_id):
        async for moment in the.broadcaster.moments():
            if moment is None:
                yield ": still here\n\n"
                continue
            if time.monotonic() - judged_at > _JUDGED_SECONDS:
                judged_at = time.monotonic()
                if not await _still_good(the, token):
                    return
            parts = _parts(the, who, topic, moment, run_id=run_id, csrf=csrf)
            changed = {name: text for name, text in parts.items() if sent.get(name) != text}
            sent |= changed
            message: dict[str, Any] = {"parts": changed}
            if moment.sampled is not None and topic == "overview" and who.all_tenants:
                message |= {"sample": moment.sampled.point(), "reach": the.broadcaster.history.reach()}
            yield f"data: {json.dumps(message)}\n\n"


async def _still_good(the: Site, token: str) -> bool:
    try:
        await the.services.identify(token)
    except ApiError:
        return False
    return True


def _parts(
    the: Site, who: Identity, topic: str, moment: Moment, *, run_id: str | None, csrf: str
) -> dict[str, str]:
    """Return the parts of a page as they are now."""
    rights = whole_rights(who) | {"who": who, "csrf": csrf}
    if topic == "overview":
        context = shown.overview(moment, the.broadcaster.history, who.tenant) | rights
        return {name: the.fragment(name, context) for name in _OVERVIEW}
    if topic == "processes":
        return {"processes": the.fragment("processes", shown.processes(moment) | rights)}
    if run_id is not None and run_id in moment.runs and moment.pulse is not None:
        run = moment.runs[run_id]
        if who.tenant in (None, run.tenant):
            return {"run": the.fragment("run", run_context(run, moment.pulse.at) | rights)}
    return {}
