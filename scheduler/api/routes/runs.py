"""/runs: lists, one run with its attempts, another chance, and results."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from scheduler.api.api_responses import Listed, answer, body, listed, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import RunsFilter, RunsQuery, Serve, Who
from scheduler.postgres.runs.lists import RunFilter
from scheduler.views.base import View
from scheduler.views.runs import RunView, WholeRunView

router = APIRouter(prefix="/runs", tags=["runs"], route_class=DirectRoute)
_WRITES = responses(404, 408, 409, 413)


class Matched(View):
    """How many matched."""

    matched: int


def run_filter(query: RunsFilter, job_id: str | None = None) -> RunFilter:
    """Return which runs a query asks for."""
    return RunFilter(status=query.status, job_id=job_id, job_type=query.job_type, tenant=query.tenant,
                     since=query.since, until=query.until)


@router.get("", response_model=Listed[RunView], responses=responses())
async def list_runs(serve: Serve, who: Who, query: Annotated[RunsQuery, Query()]) -> Response:
    """List runs, open and finished, those due last first."""
    return listed(await serve.reads.runs(who, run_filter(query), query.limit, query.after))


@router.post("/retry", response_model=Matched, responses=responses())
async def retry_runs(serve: Serve, who: Who, query: Annotated[RunsFilter, Query()], request: Request) -> Response:
    """Give all runs that match, and were given up or cancelled, a fresh set of attempts; at least one filter."""
    return answer(Matched(matched=await serve.actions.all_runs(who, run_filter(query), request.is_disconnected)))


@router.get("/{event_id}", response_model=WholeRunView, responses=responses(404))
async def get_run(serve: Serve, who: Who, event_id: UUID) -> Response:
    """Show one run with its attempts."""
    return answer(await serve.reads.run(who, event_id))


@router.post("/{event_id}/retry", response_model=WholeRunView, responses=_WRITES,
             openapi_extra=body("RunRetry", required=False))
async def retry_run(serve: Serve, who: Who, event_id: UUID, request: Request) -> Response:
    """Give a run that was given up or cancelled a fresh set of attempts, at once."""
    return answer(await serve.actions.retry(who, event_id, await request.body()))


@router.post("/{event_id}/result", response_model=WholeRunView, responses=_WRITES,
             openapi_extra=body("RunResult"))
async def report_result(serve: Serve, who: Who, event_id: UUID, request: Request) -> Response:
    """Report what became of an attempt."""
    return answer(await serve.actions.result(who, event_id, await request.body()))
