"""The list of jobs: search, filters, actions on a row and on all matching jobs."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api import cursors
from scheduler.api.console import bulk_actions
from scheduler.api.console.formatting import local
from scheduler.api.console.late_jobs import late_rows
from scheduler.api.console.list_filters import (
    JOB_FILTERS,
    address,
    describe_filters,
    filter_problems,
    live_address,
    parse_filters,
)
from scheduler.api.console.site import ConsoleRoute, Site, SiteParam, Visitor, may
from scheduler.api.identity import Identity, Permission, check, visible_tenant
from scheduler.domain.instants import parse_instant, rfc3339
from scheduler.domain.messages import BULK_VERBS
from scheduler.domain.time_ordered_id import time_ordered_id
from scheduler.postgres.jobs.lists import JobFilter, JobRow, list_next_jobs
from scheduler.views.base import Page
from scheduler.views.jobs import JobView, job_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_NEXT_LISTED = 100


@dataclass(frozen=True, slots=True)
class NextRunSpan:
    """A span of next runs."""

    start: datetime | None
    end: datetime | None

    def __bool__(self) -> bool:
        return (self.start, self.end) != (None, None)

    @property
    def texts(self) -> dict[str, str | None]:
        """The span as parameters of an address."""
        times = {"from": self.start, "until": self.end}
        return {name: None if time is None else rfc3339(time) for name, time in times.items()}


@router.get("/jobs")
async def jobs_page(request: Request, site: SiteParam, who: Visitor) -> Response:
    """List jobs."""
    query = dict(request.query_params)
    filters = parse_filters(query, JOB_FILTERS)
    span, problems = _span(query)
    problems |= filter_problems(filters, "jobs")
    if query.get("late") or query.get("sort") == "late":
        return await _late_page(request, site, who, filters, problems)
    sort = "next" if query.get("sort") == "next" else ""
    page: Page[JobView] = Page([])
    if not problems:
        page = await _page(site, who, filters, sort, query.get("after") or None, span)
    ask = None
    if query.get("ask") in BULK_VERBS and filters and not span and not problems and may(who, Permission.WRITE):
        ask = await bulk_actions.confirm_jobs(site.services, who, query["ask"], JobFilter(**filters), filters)
    here = address("/jobs", filters, {"sort": sort}, span.texts)
    context: dict[str, Any] = {
        "who": who, "page": "jobs", "jobs": page.items, "filters": dict.fromkeys(JOB_FILTERS) | filters,
        "filtered": bool(filters) or bool(span), "description": _description(filters, span), "here": here,
        "ask": ask, "problems": problems, "late": False, "sorted_by_next": _sorted(filters, sort),
        "sort": sort, "bulk": bool(filters) and not span,  # a bulk action ignores the span
        "next": address("/jobs", filters, {"sort": sort, "after": page.next}, span.texts) if page.next else None,
        "first": here if query.get("after") else None,
        "live": None if problems else live_address("jobs", filters, newest=not query.get("after") and not sort),
        "verbs": BULK_VERBS, "last": "" if sort else page.next or "",
        "example_id": str(time_ordered_id()),
        "example_at": rfc3339(datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)),
    }
    return site.page(request, "jobs.html", context, 422 if problems else 200)


def _description(filters: dict[str, str], span: NextRunSpan) -> str:
    ends = [f"{word} {local(time)}" for word, time in (("from", span.start), ("before", span.end)) if time]
    return f"{describe_filters(filters)}{' with the next run ' + ' '.join(ends) if ends else ''}".strip()


def _sorted(filters: dict[str, str], sort: str) -> str:
    """Return the address of the other order: by next run, or newest first."""
    return address("/jobs", filters, {"sort": None if sort == "next" else "next"})


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
        "description": describe_filters(filters), "here": here, "ask": None, "bulk": False, "last": "",
        "verbs": BULK_VERBS,
        "next": address("/jobs", {"late": "1"}, filters, {"after": rows.next}) if rows.next else None,
        "first": here if after else None,
    }, 422 if problems else 200)


def _span(query: dict[str, str]) -> tuple[NextRunSpan, dict[str, str]]:
    """Return the span of the next runs to list in their order, and its problems by field."""
    times, problems = {}, {}
    for name in ("from", "until"):
        if query.get("sort") == "next" and query.get(name):
            try:
                times[name] = parse_instant(query[name])
            except ValueError as error:
                problems[name] = str(error)
    return NextRunSpan(times.get("from"), times.get("until")), problems


async def _page(  # noqa: PLR0917 - the parts of one list
    site: Site, who: Identity, filters: dict[str, str], sort: str, after: str | None, span: NextRunSpan
) -> Page[JobView]:
    """Return the newest jobs, or the next due jobs."""
    if sort != "next":
        return await site.services.reads.jobs(who, JobFilter(**filters), after=after)
    check(who, Permission.READ)
    tenant, visible = visible_tenant(who, filters.get("tenant"))
    if not visible:
        return Page([])
    parsed = JobFilter(**{name: value for name, value in filters.items() if name != "tenant"}, tenant=tenant)
    start = None if span.start is None else (span.start, str(UUID(int=0)))
    position = cursors.read("next", after) or start
    rows = await site.services.database.search(
        lambda at: list_next_jobs(at, parsed, _NEXT_LISTED + 1, position, span.end))
    last = rows[_NEXT_LISTED - 1].job if len(rows) > _NEXT_LISTED else None
    following = cursors.write("next", last.wake_at, last.id) if last is not None and last.wake_at else None
    return Page([job_view(row) for row in rows[:_NEXT_LISTED]], following)
