"""The list of jobs: search, filters, actions on a row and on all matching jobs."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api import cursors
from scheduler.api.console import bulk_actions
from scheduler.api.console.late_jobs import late_rows
from scheduler.api.console.list_filters import (
    JOB_FILTERS,
    address,
    check_filters,
    describe_filters,
    filter_problems,
    live_address,
    parse_filters,
)
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, SiteParam, Visitor, may, redirect_to
from scheduler.api.identity import Identity, Permission, check, visible_tenant
from scheduler.api.problems import Unprocessable
from scheduler.domain.errors import Problem
from scheduler.domain.instants import rfc3339
from scheduler.domain.messages import BULK_VERBS
from scheduler.domain.time_ordered_id import time_ordered_id
from scheduler.postgres.jobs.lists import JobFilter, JobRow, list_next_jobs
from scheduler.views.base import Page
from scheduler.views.jobs import JobView, job_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_NEXT_LISTED = 100


@router.get("/jobs")
async def jobs_page(request: Request, site: SiteParam, who: Visitor) -> Response:
    """List jobs."""
    query = dict(request.query_params)
    filters = parse_filters(query, JOB_FILTERS)
    problems = filter_problems(filters, "jobs")
    if query.get("late") or query.get("sort") == "late":
        return await _late_page(request, site, who, filters, problems)
    sort = "next" if query.get("sort") == "next" else ""
    page: Page[JobView] = Page([])
    if not problems:
        page = await _page(site, who, filters, sort, query.get("after") or None)
    ask = None
    if query.get("ask") in BULK_VERBS and filters and not problems and may(who, Permission.WRITE):
        ask = await bulk_actions.confirm_jobs(site.services, who, query["ask"], JobFilter(**filters), filters)
    here = address("/jobs", filters, {"sort": sort})
    context: dict[str, Any] = {
        "who": who, "page": "jobs", "jobs": page.items, "filters": dict.fromkeys(JOB_FILTERS) | filters,
        "filtered": bool(filters), "description": describe_filters(filters), "here": here, "sort": sort,
        "ask": ask, "problems": problems, "late": False,
        "next": address("/jobs", filters, {"sort": sort, "after": page.next}) if page.next else None,
        "first": here if query.get("after") else None,
        "live": None if problems else live_address("jobs", filters, newest=not query.get("after") and not sort),
        "verbs": BULK_VERBS, "last": "" if sort else page.next or "",
        "example_id": str(time_ordered_id()),
        "example_at": rfc3339(datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)),
    }
    return site.page(request, "jobs.html", context, 422 if problems else 200)


async def _late_page(
    request: Request, site: Site, who: Identity, filters: dict[str, str], problems: dict[str, str]
) -> Response:
    """List the jobs that are due and not emitted."""
    after, now = request.query_params.get("after") or None, datetime.now(UTC)
    rows: Page[JobRow] = Page([])
    if not problems:
        rows = await site.services.reads.late_job_rows(who, JobFilter(**filters), after=after)
    pulse = (await site.broadcaster.fresh()).pulse
    here = address("/jobs", {"late": "1"}, filters)
    return site.page(request, "jobs.html", {
        "who": who, "page": "jobs", "jobs": late_rows(rows.items, pulse, now), "late": True, "sort": "late",
        "filters": dict.fromkeys(JOB_FILTERS) | filters, "filtered": bool(filters), "problems": problems,
        "description": describe_filters(filters), "here": here, "ask": None, "verbs": BULK_VERBS, "last": "",
        "next": address("/jobs", {"late": "1"}, filters, {"after": rows.next}) if rows.next else None,
        "first": here if after else None,
    }, 422 if problems else 200)


async def _page(site: Site, who: Identity, filters: dict[str, str], sort: str, after: str | None) -> Page[JobView]:
    """Return the newest jobs, or the next due jobs."""
    if sort != "next":
        return await site.services.reads.jobs(who, JobFilter(**filters), after=after)
    check(who, Permission.READ)
    tenant, visible = visible_tenant(who, filters.get("tenant"))
    if not visible:
        return Page([])
    parsed = JobFilter(**{name: value for name, value in filters.items() if name != "tenant"}, tenant=tenant)
    position = cursors.read("next", after)
    rows = await site.services.database.search(lambda at: list_next_jobs(at, parsed, _NEXT_LISTED + 1, position))
    last = rows[_NEXT_LISTED - 1].job if len(rows) > _NEXT_LISTED else None
    following = cursors.write("next", last.wake_at, last.id) if last is not None and last.wake_at else None
    return Page([job_view(row) for row in rows[:_NEXT_LISTED]], following)


@router.post("/jobs/bulk")
async def bulk_jobs(site: SiteParam, who: Visitor, form: Form) -> Response:
    """Pause, resume or cancel all matching jobs."""
    action, filters = form.get("action", ""), parse_filters(form, JOB_FILTERS)
    check_filters(filters, "jobs")
    if action not in BULK_VERBS or not filters:
        raise Unprocessable([Problem("action", f"needs a filter, and is one of {', '.join(BULK_VERBS)}")])
    parsed = JobFilter(**filters)
    opposite = BULK_VERBS[action].undo
    # Offer an undo only if it would change no other jobs than this action.
    mixed = opposite is None or await bulk_actions.count_matching(site.services, who,
                                                                  bulk_actions.narrow_filters(opposite, parsed))
    number = 0
    for narrowed in bulk_actions.narrow_filters(action, parsed):
        number += await site.services.actions.all_jobs(who, action, narrowed)
    rest = {name: value for name, value in filters.items() if name != "status"}
    undo = address("/jobs/undo", rest, {"do": opposite}) if number and not mixed and rest else None
    return redirect_to(address("/jobs", rest), Flash(bulk_actions.done_message(action, number), then=undo))


@router.post("/jobs/undo")
async def undo(request: Request, site: SiteParam, who: Visitor, form: Form) -> Response:  # noqa: ARG001 - checked
    """Resume all jobs that a bulk pause paused, or pause all jobs that a bulk resume resumed."""
    query = dict(request.query_params)
    filters, action = parse_filters(query, JOB_FILTERS), query.get("do", "")
    check_filters(filters, "jobs")
    if action not in BULK_VERBS or BULK_VERBS[action].undo is None or not filters:
        raise Unprocessable([Problem("do", "needs a filter, and is pause or resume")])
    number = 0
    for narrowed in bulk_actions.narrow_filters(action, JobFilter(**filters)):
        number += await site.services.actions.all_jobs(who, action, narrowed)
    return redirect_to(address("/jobs", filters), Flash(bulk_actions.done_message(action, number)))
