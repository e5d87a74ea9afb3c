"""The list of jobs: search, filters in the address, pause in the row, and actions over all that match."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api import cursors
from scheduler.api.console import bulk_actions
from scheduler.api.console.list_filters import JOB_FILTERS, address, filters, in_words, live_address
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, The, Visitor, may, redirect_to
from scheduler.api.identity import Identity, Permission, check, visible_tenant
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.instants import rfc3339
from scheduler.postgres.jobs.lists import JobFilter, list_next_jobs
from scheduler.views.base import Page
from scheduler.views.jobs import JobView, job_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_NEXT_LISTED = 100


@router.get("/jobs")
async def jobs_page(request: Request, the: The, who: Visitor) -> Response:
    """List jobs."""
    given = dict(request.query_params)
    found = filters(given, JOB_FILTERS, "jobs")
    sort = "next" if given.get("sort") == "next" else ""
    page = await _page(the, who, found, sort, given.get("after") or None)
    ask = None
    if given.get("ask") in bulk_actions.VERBS and found and may(who, Permission.WRITE):
        ask = await bulk_actions.confirm_jobs(the.services, who, given["ask"], JobFilter(**found), found)
    here = address("/jobs", found, {"sort": sort})
    context: dict[str, Any] = {
        "who": who, "page": "jobs", "jobs": page.items, "filters": dict.fromkeys(JOB_FILTERS) | found,
        "filtered": bool(found), "said": in_words(found), "here": here, "sort": sort, "ask": ask,
        "next": address("/jobs", found, {"sort": sort, "after": page.next}) if page.next else None,
        "first": here if given.get("after") else None,
        "live": live_address("jobs", found, newest=not given.get("after") and not sort),
        "last": "" if sort else page.next or "",
        "example_id": str(uuid4()),
        "example_at": rfc3339(datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)),
    }
    return the.page(request, "jobs.html", context)


async def _page(the: Site, who: Identity, found: dict[str, str], sort: str, after: str | None) -> Page[JobView]:
    """Return the newest jobs, or those that are due next."""
    if sort != "next":
        return await the.services.reads.jobs(who, JobFilter(**found), after=after)
    check(who, Permission.READ)
    tenant, any_ = visible_tenant(who, found.get("tenant"))
    if not any_:
        return Page([])
    wanted = JobFilter(**{name: value for name, value in found.items() if name != "tenant"}, tenant=tenant)
    place = cursors.read("next", after)
    rows = await the.services.database.search(lambda at: list_next_jobs(at, wanted, _NEXT_LISTED + 1, place))
    last = rows[_NEXT_LISTED - 1].job if len(rows) > _NEXT_LISTED else None
    following = cursors.write("next", last.wake_at, last.id) if last is not None and last.wake_at else None
    return Page([job_view(row) for row in rows[:_NEXT_LISTED]], following)


@router.post("/jobs/bulk")
async def bulk_jobs(the: The, who: Visitor, form: Form) -> Response:
    """Pause, resume or cancel all jobs that match."""
    action, found = form.get("action", ""), filters(form, JOB_FILTERS, "jobs")
    if action not in bulk_actions.VERBS or not found:
        raise Unprocessable([Problem("action", "needs a filter, and is pause, resume or cancel")])
    wanted = JobFilter(**found)
    opposite = bulk_actions.OPPOSITE.get(action)
    # What stood so before must stay so: an undo is offered only where it undoes this and nothing else.
    mixed = opposite is None or await bulk_actions.count_matching(the.services, who,
                                                                  bulk_actions.narrow_filters(opposite, wanted))
    number = 0
    for each in bulk_actions.narrow_filters(action, wanted):
        number += await the.services.actions.all_jobs(who, action, each)
    rest = {name: value for name, value in found.items() if name != "status"}
    undo = address("/jobs/undo", rest, {"do": opposite}) if number and not mixed and rest else None
    return redirect_to(address("/jobs", rest), Flash(bulk_actions.done_message(action, number), then=undo))


@router.post("/jobs/undo")
async def undo(request: Request, the: The, who: Visitor, form: Form) -> Response:  # noqa: ARG001 - checked
    """Resume all that a pause has paused, or pause all that were resumed."""
    given = dict(request.query_params)
    found, action = filters(given, JOB_FILTERS, "jobs"), given.get("do", "")
    if action not in bulk_actions.OPPOSITE or not found:
        raise Unprocessable([Problem("do", "needs a filter, and is pause or resume")])
    number = 0
    for each in bulk_actions.narrow_filters(action, JobFilter(**found)):
        number += await the.services.actions.all_jobs(who, action, each)
    return redirect_to(address("/jobs", found), Flash(bulk_actions.done_message(action, number)))
