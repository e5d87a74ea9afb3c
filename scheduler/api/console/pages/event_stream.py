"""The stream that keeps a page live: what has changed on it, for as long as its token is good."""

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from scheduler.api import cursors
from scheduler.api.console import session
from scheduler.api.console.list_filters import JOB_FILTERS, RUN_FILTERS, filters, wanted_runs
from scheduler.api.console.new_rows import Place
from scheduler.api.console.pages.runs import job_of
from scheduler.api.console.site import ConsoleRoute, Site, The, Visitor
from scheduler.api.console.topics import (
    JobsTopic,
    JobTopic,
    OverviewTopic,
    PageViewer,
    ProcessesTopic,
    RunsTopic,
    RunTopic,
    Topic,
)
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import ApiError, NotFound
from scheduler.postgres.jobs.lists import JobFilter

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_MOST_ROWS = 200
_JUDGED_SECONDS = 30.0  # a stream ends with its token
_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get("/live")
async def live(request: Request, the: The, who: Visitor, topic: str = "overview") -> Response:
    """Stream what changes on a page: parts and rows of it as markup, and samples for its charts."""
    check(who, Permission.READ_ALL if topic == "processes" else Permission.READ)
    found = await _topic(the, who, topic, request.query_params)
    stream = _messages(the, who, found, session.token_of(request) or "")
    return _Stream(stream, the.streams.take(who))


class _Stream(StreamingResponse):
    """A stream that says when it has ended, also if it never began."""

    def __init__(self, messages: AsyncIterator[str], ended: Callable[[], None]) -> None:
        super().__init__(messages, media_type="text/event-stream", headers=_STREAM)
        self._ended = ended

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send it until the client or the token is gone."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


async def _topic(the: Site, who: Identity, name: str, given: Mapping[str, str]) -> Topic:
    """Return what a page is about; raise NotFound for what is not there, or another tenant's."""
    kind, _, key = name.partition(":")
    try:
        match kind:
            case "overview":
                return OverviewTopic()
            case "processes":
                return ProcessesTopic()
            case "run":
                run = await the.services.reads.run(who, UUID(key))
                return RunTopic(str(run.event_id), await job_of(the, who, run))
            case "job":
                return JobTopic((await the.services.reads.job_row(who, UUID(key))).job.id)
            case "jobs":
                wanted = JobFilter(**filters(given, JOB_FILTERS, "jobs"))
                return JobsTopic(wanted, _rows(given), _last("jobs", given), bool(given.get("newest")))
            case "runs":
                asked, _ = wanted_runs(filters(given, RUN_FILTERS, "runs"))
                return RunsTopic(asked, _rows(given), _last("runs", given), bool(given.get("newest")))
    except ValueError:
        pass
    raise NotFound("There is no such page to be kept live.")


def _rows(given: Mapping[str, str]) -> frozenset[str]:
    """Return the ids of the rows that the page shows."""
    return frozenset(str(UUID(each)) for each in given.get("rows", "").split(",")[:_MOST_ROWS] if each)


def _last(kind: str, given: Mapping[str, str]) -> Place | None:
    """Return where the page ends, None where it has room left."""
    return cursors.read(kind, given.get("last") or None)


async def _messages(the: Site, who: Identity, topic: Topic, token: str) -> AsyncIterator[str]:
    """Yield a message for every moment, as long as the token is good."""
    reader, judged_at = PageViewer(the, who, session.form_token(token), the.broadcaster.looks), time.monotonic()
    yield "retry: 2000\n\n"
    with the.broadcaster.watching.of(topic.watches):
        async for moment in the.broadcaster.moments():
            if moment is None:
                yield ": still here\n\n"
                continue
            if time.monotonic() - judged_at > _JUDGED_SECONDS:
                judged_at = time.monotonic()
                if not await _still_good(the, token):
                    return
            if isinstance(topic, OverviewTopic):
                await topic.refresh(reader)
            yield f"data: {json.dumps(topic.message(moment, reader))}\n\n"


async def _still_good(the: Site, token: str) -> bool:
    try:
        await the.services.identify(token)
    except ApiError:
        return False
    return True
