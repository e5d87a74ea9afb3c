"""/runs: lists, single runs with their attempts, retries, cancels and results."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from scheduler.api.api_responses import Listed, body, json_response, page_response, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import Api, RunsFilter, RunsQuery, Who
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.base import View
from scheduler.views.runs import RunView, WholeRunView

router = APIRouter(prefix="/runs", tags=["runs"], route_class=DirectRoute)
_WRITES = responses(404, 408, 409, 413)


class Matched(View):
    """The number of matching jobs or runs."""

    matched: int


def run_filter(query: RunsFilter, job_id: str | None = None) -> RunFilter:
    """Return the filters in a query."""
    return RunFilter(status=query.status, job_id=job_id, job_type=query.job_type, tenant=query.tenant,
                     since=query.since, until=query.until)


@router.get("", response_model=Listed[RunView], responses=responses())
async def list_runs(api: Api, who: Who, query: Annotated[RunsQuery, Query()]) -> Response:
    """List runs, open and finished, the latest due first."""
    return page_response(await api.reads.runs(who, run_filter(query), query.limit, query.after))


@router.post("/retry", response_model=Matched, responses=responses())
async def retry_runs(api: Api, who: Who, query: Annotated[RunsFilter, Query()], request: Request) -> Response:
    """Retry all matching dead or cancelled runs with their full number of attempts."""
    matched = await api.actions.all_runs(who, run_filter(query), request.is_disconnected)
    return json_response(Matched(matched=matched))


@router.get("/{event_id}", response_model=WholeRunView, responses=responses(404))
async def get_run(api: Api, who: Who, event_id: UUID) -> Response:
    """Show one run with its attempts."""
    return json_response(await api.reads.run(who, event_id))


@router.post("/{event_id}/retry", response_model=WholeRunView, responses=_WRITES,
             openapi_extra=body("RunRetry", required=False))
async def retry_run(api: Api, who: Who, event_id: UUID, request: Request) -> Response:
    """Retry a dead or cancelled run now, with its full number of attempts."""
    return json_response(await api.actions.retry(who, event_id, await request.body()))


@router.post("/{event_id}/cancel", response_model=WholeRunView, responses=responses(404, 409))
async def cancel_run(api: Api, who: Who, event_id: UUID) -> Response:
    """Cancel an open run: no further attempt is made. A late success still counts."""
    return json_response(await api.actions.cancel_run(who, event_id))


@router.post("/{event_id}/result", response_model=WholeRunView, responses=_WRITES,
             openapi_extra=body("RunResult"))
async def report_result(api: Api, who: Who, event_id: UUID, request: Request) -> Response:
    """Report the result of an attempt."""
    return json_response(await api.actions.result(who, event_id, await request.body()))
