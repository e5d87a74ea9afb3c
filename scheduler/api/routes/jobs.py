"""/jobs: lists, single jobs, and actions on them."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from scheduler.api.actions import ActionResult
from scheduler.api.api_responses import Listed, body, json_response, page_response, preview_response, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import (
    Api,
    CancelQuery,
    JobsFilter,
    JobsQuery,
    OccurrencesQuery,
    PageQuery,
    RunsQuery,
    Who,
    if_match,
)
from scheduler.api.routes.runs import Matched, run_filter
from scheduler.domain.messages import BULK_VERBS, JOB_VERBS, ScheduleCancel
from scheduler.domain.messages.commands import JobVerb
from scheduler.postgres.jobs.lists import JobFilter, JobRow
from scheduler.views.job_versions import JobVersionView
from scheduler.views.jobs import JobView, job_etag, job_view
from scheduler.views.occurrences import OccurrenceView, PreviewView
from scheduler.views.runs import RunView

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=DirectRoute)
NDJSON = "application/x-ndjson"
_NDJSON_BODY = {"requestBody": {"required": True, "content": {NDJSON: {"schema": {"type": "string"}}}}}
_WRITES = responses(404, 408, 409, 412, 413)
_ETAG: dict[str, Any] = {"headers": {"ETag": {"schema": {"type": "string"}}}}
_JOB: dict[int | str, dict[str, Any]] = {200: {"model": JobView, **_ETAG}}
_IF_MATCH = {"parameters": [
    {"name": "If-Match", "in": "header", "required": False, "schema": {"type": "string"},
     "description": "An ETag that the job must still have."},
]}


def job_filter(query: JobsFilter) -> JobFilter:
    """Return the filters in a query."""
    return JobFilter(status=query.status, job_type=query.job_type, tenant=query.tenant, priority=query.priority,
                     q=query.q)


def job_response(row: JobRow, status: int = 200) -> Response:
    """Return a job with its ETag."""
    return json_response(job_view(row), status, {"ETag": job_etag(row)})


def action_response(result: ActionResult) -> Response:
    """Return the job after an action."""
    response = job_response(result.row, 201 if result.created else 200)
    if result.created:
        response.headers["Location"] = f"/api/v1/jobs/{result.row.job.id}"
    return response


@router.get("", response_model=Listed[JobView], responses=responses())
async def list_jobs(api: Api, who: Who, query: Annotated[JobsQuery, Query()]) -> Response:
    """List jobs, newest created first; with `late` those that are due and not emitted, the longest late first."""
    if query.late:
        return page_response(await api.reads.late_jobs(who, job_filter(query), query.limit, query.after))
    return page_response(await api.reads.jobs(who, job_filter(query), query.limit, query.after))


@router.post("", status_code=201, response_model=JobView, openapi_extra=body("NewJob"),
             responses={**_WRITES, 201: {"model": JobView, **_ETAG}, 200: {"model": JobView, **_ETAG}})
async def create_job(api: Api, who: Who, request: Request) -> Response:
    """Create a job; the id is optional. Repeating the same request returns 200."""
    return action_response(await api.actions.create(who, await request.body()))


@router.post("/import", openapi_extra=_NDJSON_BODY,
             responses={**responses(408, 413), 200: {"content": {NDJSON: {"schema": {"type": "string"}}}}})
async def import_jobs(api: Api, who: Who, request: Request) -> Response:
    """Store up to 10,000 requests, one per line (NDJSON); return one line for each, with its status or errors."""
    return Response(await api.job_import.run(who, request.stream), media_type=NDJSON)


def _add_bulk_verb(verb: str, model: type[JobVerb]) -> None:
    async def act(api: Api, who: Who, query: Annotated[JobsFilter, Query()], request: Request) -> Response:
        matched = await api.actions.all_jobs(who, verb, job_filter(query), request.is_disconnected)
        return json_response(Matched(matched=matched))

    router.add_api_route(f"/{verb}", act, methods=["POST"], name=f"{verb}_jobs", response_model=Matched,
                         responses=responses(),
                         description=f"{model.help}: all matching jobs; at least one filter is required.")


for _verb, _model in BULK_VERBS.items():
    _add_bulk_verb(_verb, _model)


@router.get("/{id}", response_model=JobView, responses={**responses(404), **_JOB})
async def get_job(api: Api, who: Who, id: UUID) -> Response:
    """Show one job."""
    return job_response(await api.reads.job_row(who, id))


@router.put("/{id}", response_model=JobView, openapi_extra=body("NewJob") | _IF_MATCH,
            responses={**_WRITES, **_JOB, 201: {"model": JobView, **_ETAG}})
async def replace_job(api: Api, who: Who, id: UUID, request: Request) -> Response:
    """Create a job, or replace its request."""
    return action_response(await api.actions.replace(who, id, await request.body(), if_match(request)))


@router.delete("/{id}", response_model=JobView, openapi_extra=_IF_MATCH,
               responses={**_WRITES, **_JOB, 204: {"description": "Purged."}})
async def cancel_job(
    api: Api, who: Who, id: UUID, query: Annotated[CancelQuery, Query()], request: Request
) -> Response:
    """Cancel a job; with `purge=true`, for admins, erase its content, runs and history too."""
    if query.purge:
        await api.actions.purge(who, id)
        return Response(status_code=204)
    return action_response(await api.actions.command(who, "cancel", id, await request.body(), if_match(request)))


def _add_verb(verb: str, model: type[JobVerb]) -> None:
    async def act(api: Api, who: Who, id: UUID, request: Request) -> Response:
        return action_response(await api.actions.command(who, verb, id, await request.body(), if_match(request)))

    router.add_api_route(f"/{{id}}/{verb}", act, methods=["POST"], name=f"{verb}_job", response_model=JobView,
                         responses={**_WRITES, **_JOB}, description=model.__doc__,
                         openapi_extra=body("JobCommand", required=False) | _IF_MATCH)


for _verb, _model in JOB_VERBS.items():
    if _model is not ScheduleCancel:  # that is DELETE
        _add_verb(_verb, _model)


@router.get("/{id}/occurrences", response_model=Listed[OccurrenceView] | PreviewView,
            responses=responses(404))
async def list_occurrences(
    api: Api, who: Who, id: UUID, query: Annotated[OccurrencesQuery, Query()]
) -> Response:
    """List the next occurrences of a job."""
    page = await api.reads.occurrences(who, id, count=query.count, start=query.start, end=query.end)
    return preview_response(page)


@router.get("/{id}/versions", response_model=Listed[JobVersionView], responses=responses(404))
async def list_job_versions(
    api: Api, who: Who, id: UUID, query: Annotated[PageQuery, Query()]
) -> Response:
    """List the requests that defined a job, newest first."""
    return page_response(await api.reads.versions(who, id, query.limit, query.after))


@router.post("/{id}/versions/{n}/restore", response_model=JobView, responses={**_WRITES, **_JOB})
async def restore_job_version(api: Api, who: Who, id: UUID, n: int) -> Response:
    """Request a version of a job again."""
    return action_response(await api.actions.restore(who, await api.reads.version(who, id, n)))


@router.get("/{id}/runs", response_model=Listed[RunView], responses=responses(404))
async def list_runs_of_job(api: Api, who: Who, id: UUID, query: Annotated[RunsQuery, Query()]) -> Response:
    """List the runs of a job, the latest due first."""
    await api.reads.job_row(who, id)
    return page_response(await api.reads.runs(who, run_filter(query, str(id)), query.limit, query.after))
