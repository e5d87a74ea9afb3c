"""The stream of a live page's changes; it ends when the session is no longer valid."""

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from scheduler.api import cursors
from scheduler.api.console import session
from scheduler.api.console.list_filters import JOB_FILTERS, RUN_FILTERS, check_filters, parse_filters, run_filter
from scheduler.api.console.new_rows import Position
from scheduler.api.console.pages.runs import job_of
from scheduler.api.console.site import ConsoleRoute, Site, SiteParam, Visitor
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
_MAX_ROWS = 200
_CHECK_SECONDS = 30.0  # between checks of the session
_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get("/live")
async def live(request: Request, site: SiteParam, who: Visitor, topic: str = "overview") -> Response:
    """Stream the changes of a page: parts and rows as markup, and samples for its charts."""
    check(who, Permission.READ_ALL if topic == "processes" else Permission.READ)
    page = await _topic(site, who, topic, request.query_params)
    stream = _messages(site, who, page, session.token_of(request) or "")
    return _Stream(stream, site.streams.start(who))


class _Stream(StreamingResponse):
    """A stream that calls `ended` at its end, even if it never started."""

    def __init__(self, messages: AsyncIterator[str], ended: Callable[[], None]) -> None:
        super().__init__(messages, media_type="text/event-stream", headers=_STREAM)
        self._ended = ended

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send it until the client or the token is gone."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


async def _topic(site: Site, who: Identity, name: str, query: Mapping[str, str]) -> Topic:
    """Return the topic of a page. Raises NotFound if its object is missing or belongs to another tenant."""
    kind, _, key = name.partition(":")
    try:
        match kind:
            case "overview":
                return OverviewTopic()
            case "processes":
                return ProcessesTopic()
            case "run":
                run = await site.services.reads.run(who, UUID(key))
                return RunTopic(str(run.event_id), await job_of(site, who, run))
            case "job":
                row = await site.services.reads.job_row(who, UUID(key))
                return JobTopic(row.job.id, await site.services.reads.calendar_of(row))
            case "jobs":
                filters = JobFilter(**_checked(parse_filters(query, JOB_FILTERS), "jobs"))
                return JobsTopic(filters, _rows(query), _last("jobs", query), bool(query.get("newest")))
            case "runs":
                run_filters, _ = run_filter(_checked(parse_filters(query, RUN_FILTERS), "runs"))
                rows, newest = _rows(query), bool(query.get("newest"))
                names = await site.services.reads.run_names(sorted(rows))
                return RunsTopic(run_filters, rows, _last("runs", query), newest, names)
    except ValueError:
        pass
    raise NotFound("There is no such live page.")


def _checked(filters: dict[str, str], kind: str) -> dict[str, str]:
    check_filters(filters, kind)
    return filters


def _rows(query: Mapping[str, str]) -> frozenset[str]:
    """Return the ids of the rows that the page shows."""
    return frozenset(str(UUID(row)) for row in query.get("rows", "").split(",")[:_MAX_ROWS] if row)


def _last(kind: str, query: Mapping[str, str]) -> Position | None:
    """Return the position of the page's last row, None if the page is not full."""
    return cursors.read(kind, query.get("last") or None)


async def _messages(site: Site, who: Identity, topic: Topic, token: str) -> AsyncIterator[str]:
    """Yield a message for each snapshot while the session is valid."""
    viewer, checked_at = PageViewer(site, who, session.form_token(token), site.broadcaster.polls), time.monotonic()
    yield "retry: 2000\n\n"
    with site.broadcaster.watching.of(topic.watches):
        async for snapshot in site.broadcaster.snapshots():
            if snapshot is None:
                yield ": still here\n\n"
                continue
            if time.monotonic() - checked_at > _CHECK_SECONDS:
                checked_at = time.monotonic()
                if not await _is_valid(site, token):
                    return
            if isinstance(topic, OverviewTopic):
                await topic.refresh(viewer)
            yield f"data: {json.dumps(topic.message(snapshot, viewer))}\n\n"


async def _is_valid(site: Site, token: str) -> bool:
    try:
        await site.services.identify_visitor(token)
    except ApiError:
        return False
    return True
