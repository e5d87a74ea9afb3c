"""The list of jobs: search, filters in the address, pause in the row."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.lists import JOB_FILTERS, address, filters, in_words
from scheduler.api.console.site import ConsoleRoute, The, Visitor
from scheduler.domain.times import rfc3339
from scheduler.postgres.jobs.lists import JobFilter

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)


@router.get("/jobs")
async def jobs_page(request: Request, the: The, who: Visitor) -> Response:
    """List jobs."""
    given = dict(request.query_params)
    found = filters(given, JOB_FILTERS, "jobs")
    page = await the.services.reads.jobs(who, JobFilter(**found), after=given.get("after") or None)
    context = {
        "who": who,
        "page": "jobs",
        "jobs": page.items,
        "filters": dict.fromkeys(JOB_FILTERS) | found,
        "filtered": bool(found),
        "said": in_words(found),
        "here": address("/jobs", found),
        "sort": "",
        "ask": None,
        "next": address("/jobs", found, {"after": page.next}) if page.next else None,
        "first": address("/jobs", found) if given.get("after") else None,
        "example_id": str(uuid4()),
        "example_at": rfc3339(datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)),
    }
    return the.page(request, "jobs.html", context)
