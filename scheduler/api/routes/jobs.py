"""/jobs: lists, one job, and what can be done with it."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from scheduler.api.actions import ActionResult
from scheduler.api.api_responses import Listed, answer, body, listed, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import JobsFilter, JobsQuery, OccurrencesQuery, RunsQuery, Serve, Who, if_match
from scheduler.api.routes.runs import Matched, run_filter
from scheduler.postgres.jobs.lists import JobFilter, JobRow
from scheduler.views.jobs import JobView, job_etag, job_view
from scheduler.views.occurrences import OccurrenceView
from scheduler.views.runs import RunView

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=DirectRoute)
_WRITES = responses(404, 408, 409, 412, 413)
_ETAG: dict[str, Any] = {"headers": {"ETag": {"schema": {"type": "string"}}}}
_JOB: dict[int | str, dict[str, Any]] = {200: {"model": JobView, **_ETAG}}
_IF_MATCH = {"parameters": [
    {"name": "If-Match", "in": "header", "required": False, "schema": {"type": "string"},
     "description": "An ETag that the job must still have."},
]}


def job_filter(query: JobsFilter) -> JobFilter:
    """Return which jobs a query asks for."""
    return JobFilter(status=query.status, job_type=query.job_type, tenant=query.tenant, priority=query.priority,
                     q=query.q)


def shown(row: JobRow, status: int = 200) -> Response:
    """Return a job with its ETag."""
    return answer(job_view(row), status, {"ETag": job_etag(row)})


def done(found: ActionResult) -> Response:
    """Return the job after an action."""
    response = shown(found.row, 201 if found.created else 200)
    if found.created:
        response.headers["Location"] = f"/api/v1/jobs/{found.row.job.id}"
    return response


@router.get("", response_model=Listed[JobView], responses=responses())
async def list_jobs(serve: Serve, who: Who, query: Annotated[JobsQuery, Query()]) -> Response:
    """List jobs, newest created first."""
    return listed(await serve.reads.jobs(who, job_filter(query), query.limit, query.after))


@router.post("", status_code=201, response_model=JobView, openapi_extra=body("NewJob"),
             responses={**_WRITES, 201: {"model": JobView, **_ETAG}, 200: {"model": JobView, **_ETAG}})
async def create_job(serve: Serve, who: Who, request: Request) -> Response:
    """Make a job; the id may be left out. The same request again is answered with 200."""
    return done(await serve.actions.create(who, await request.body()))


async def _all(serve: Serve, who: Who, verb: str, query: JobsFilter, request: Request) -> Response:
    found = await serve.actions.all_jobs(who, verb, job_filter(query), request.is_disconnected)
    return answer(Matched(matched=found))


@router.post("/pause", response_model=Matched, responses=responses())
async def pause_jobs(serve: Serve, who: Who, query: Annotated[JobsFilter, Query()], request: Request) -> Response:
    """Pause all jobs that match; at least one filter."""
    return await _all(serve, who, "pause", query, request)


@router.post("/resume", response_model=Matched, responses=responses())
async def resume_jobs(serve: Serve, who: Who, query: Annotated[JobsFilter, Query()], request: Request) -> Response:
    """Resume all jobs that match; at least one filter."""
    return await _all(serve, who, "resume", query, request)


@router.post("/cancel", response_model=Matched, responses=responses())
async def cancel_jobs(serve: Serve, who: Who, query: Annotated[JobsFilter, Query()], request: Request) -> Response:
    """Cancel all jobs that match; at least one filter."""
    return await _all(serve, who, "cancel", query, request)


@router.get("/{id}", response_model=JobView, responses={**responses(404), **_JOB})
async def get_job(serve: Serve, who: Who, id: UUID) -> Response:
    """Show one job."""
    return shown(await serve.reads.job_row(who, id))


@router.put("/{id}", response_model=JobView, openapi_extra=body("NewJob") | _IF_MATCH,
            responses={**_WRITES, **_JOB, 201: {"model": JobView, **_ETAG}})
async def replace_job(serve: Serve, who: Who, id: UUID, request: Request) -> Response:
    """Make a job, or put another request in its place."""
    return done(await serve.actions.replace(who, id, await request.body(), if_match(request)))


@router.delete("/{id}", response_model=JobView, openapi_extra=_IF_MATCH, responses={**_WRITES, **_JOB})
async def cancel_job(serve: Serve, who: Who, id: UUID, request: Request) -> Response:
    """Cancel a job."""
    return done(await serve.actions.command(who, "cancel", id, await request.body(), if_match(request)))


async def _command(serve: Serve, who: Who, kind: str, job_id: UUID, request: Request) -> Response:
    return done(await serve.actions.command(who, kind, job_id, await request.body(), if_match(request)))


@router.post("/{id}/pause", response_model=JobView, responses={**_WRITES, **_JOB},
             openapi_extra=body("JobCommand", required=False) | _IF_MATCH)
async def pause_job(serve: Serve, who: Who, id: UUID, request: Request) -> Response:
    """Have a job emit nothing until it is resumed."""
    return await _command(serve, who, "pause", id, request)


@router.post("/{id}/resume", response_model=JobView, responses={**_WRITES, **_JOB},
             openapi_extra=body("JobCommand", required=False) | _IF_MATCH)
async def resume_job(serve: Serve, who: Who, id: UUID, request: Request) -> Response:
    """Have a paused job go on."""
    return await _command(serve, who, "resume", id, request)


@router.post("/{id}/trigger", response_model=JobView, responses={**_WRITES, **_JOB},
             openapi_extra=body("JobCommand", required=False) | _IF_MATCH)
async def trigger_job(serve: Serve, who: Who, id: UUID, request: Request) -> Response:
    """Have a job emit one extra occurrence now."""
    return await _command(serve, who, "trigger", id, request)


@router.get("/{id}/occurrences", response_model=Listed[OccurrenceView], responses=responses(404))
async def list_occurrences(
    serve: Serve, who: Who, id: UUID, query: Annotated[OccurrencesQuery, Query()]
) -> Response:
    """Show when a job runs next."""
    found = await serve.reads.occurrences(who, id, count=query.count, start=query.start, end=query.end)
    return listed(found)


@router.get("/{id}/runs", response_model=Listed[RunView], responses=responses(404))
async def list_runs_of_job(serve: Serve, who: Who, id: UUID, query: Annotated[RunsQuery, Query()]) -> Response:
    """List the runs of a job, those due last first."""
    await serve.reads.job_row(who, id)
    return listed(await serve.reads.runs(who, run_filter(query, str(id)), query.limit, query.after))
