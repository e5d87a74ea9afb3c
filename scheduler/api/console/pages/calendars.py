"""Calendars: the list, one calendar with its year and its jobs, the form, and delete."""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.calendar_form import calendar_values, content_of, read_calendar_form
from scheduler.api.console.formatting import count
from scheduler.api.console.list_filters import address
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, SiteParam, Visitor, may, redirect_to
from scheduler.api.console.year_calendar import year_of_calendar
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import Conflict, NotFound, PreconditionFailed, Unprocessable
from scheduler.domain.calendars import business_calendar
from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.recurrence.window import WEEKDAYS
from scheduler.domain.tenants import EVERY_TENANT
from scheduler.views.calendars import CalendarView, calendar_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_LISTED = 100
_JOBS_LISTED = 50
_EXPIRES_SOON = 30  # days, as in the alert rule
_CHANGED = (
    "The calendar was changed by someone else. Your input is still here: compare, and save again to replace it."
)


@router.get("/calendars")
async def calendars_page(request: Request, site: SiteParam, who: Visitor, after: str | None = None) -> Response:
    """List the calendars."""
    page = await site.services.calendars.list_all(who, _LISTED, after or None)
    rows = [row_context(who, calendar) for calendar in page.items]
    return site.page(request, "calendars.html", {
        "who": who, "page": "calendars", "calendars": rows, "every": EVERY_TENANT,
        "next": address("/calendars", {"after": page.next}) if page.next else None,
        "first": "/calendars" if after else None,
    })


def row_context(who: Identity, view: CalendarView) -> dict[str, Any]:
    """Return a calendar with its address and its expiry notice."""
    days = None if view.valid_until is None else (date.fromisoformat(view.valid_until) - _today()).days
    expiry = None
    if days is not None and days < 0:
        expiry = f"expired {count(-days, 'day')} ago: only the closed weekdays count"
    elif days is not None and days < _EXPIRES_SOON:
        expiry = f"expires in {count(days, 'day')}" if days else "expires today"
    return view.model_dump() | {
        "href": calendar_address(view.name, view.tenant), "expiry": expiry,
        "writable": _may_change(who, view.tenant),
    }


def _may_change(who: Identity, owner: str) -> bool:
    return may(who, Permission.WRITE_ALL if owner == EVERY_TENANT else Permission.WRITE)


def _today() -> date:
    return datetime.now(UTC).date()


def calendar_address(name: str, owner: str, action: str = "") -> str:
    """Return the address of a calendar's page."""
    return address(f"/calendars/{name}{action}", {"tenant": owner})


@router.get("/calendar/new")
async def new_page(request: Request, site: SiteParam, who: Visitor) -> Response:
    """Show an empty form."""
    check(who, Permission.WRITE)
    values = calendar_values({"weekend": ["SA", "SU"]}) | {"tenant": who.tenant or "default"}
    return _form_page(request, site, who, values, {})


def _form_page(
    request: Request, site: Site, who: Identity, values: Mapping[str, str], problems: Mapping[str, str], *,
    stored: CalendarView | None = None, status: int = 200, problem: str | None = None,
) -> Response:
    names = ("name", "tenant", "closed", "open", "valid_until", *(f"weekend_{day}" for day in WEEKDAYS))
    return site.page(request, "calendar_form.html", {
        "who": who, "page": "calendars", "values": dict.fromkeys(names, "") | dict(values),
        "problems": dict(problems),
        "calendar": stored, "weekday_names": WEEKDAYS, "problem": problem,
        "action": "/calendar/new" if stored is None else calendar_address(stored.name, stored.tenant, "/edit"),
    }, status)


@router.post("/calendar/new")
async def create(request: Request, site: SiteParam, who: Visitor, form: Form) -> Response:
    """Create a calendar, or show the form again with its problems."""
    fields, problems = read_calendar_form(form)
    name, owner = form.get("name", "").strip(), form.get("tenant") or who.tenant
    if not name:
        problems["name"] = "is required"
    elif not problems and await _find(site, who, name, owner or "default") is not None:
        problems["name"] = "belongs to another calendar: edit that one"
    if not problems:
        problems = await save(site, who, name, owner, fields)
    if problems:
        return _form_page(request, site, who, form, problems, status=422)
    return redirect_to(calendar_address(name, owner or "default"), Flash(f"Created: {name}"))


async def _find(site: Site, who: Identity, name: str, owner: str) -> CalendarView | None:
    """Return an owner's own calendar, None if there is none."""
    try:
        view = await site.services.calendars.get(who, name, owner)
    except (NotFound, Unprocessable):
        return None
    return view if view.tenant == owner else None


async def save(
    site: Site, who: Identity, name: str, owner: str | None, fields: Mapping[str, Any]
) -> dict[str, str]:
    """Store a calendar; return its problems by field."""
    try:
        await site.services.calendars.put(who, name, owner, json.dumps(fields).encode())
    except Rejected as rejected:
        return {problem.field: problem.problem for problem in rejected.problems}
    except Unprocessable as error:
        return {problem.field: problem.problem for problem in error.errors}
    except Conflict as error:
        return {"name": error.detail}
    return {}


@router.get("/calendars/{name}")
async def calendar_page(request: Request, site: SiteParam, who: Visitor, name: str) -> Response:
    """Show one calendar: its year, its dates, and the jobs that use it."""
    row = await site.services.calendars.row(who, name, _owner(request))
    view = calendar_view(row)
    chosen = _year(request.query_params.get("year"))
    calendar = await site.services.compute.run(lambda: business_calendar(row.content))
    jobs = await site.services.calendars.jobs(who, row, _JOBS_LISTED)
    here = calendar_address(view.name, view.tenant)
    return site.page(request, "calendar.html", {
        "who": who, "page": "calendars", "calendar": row_context(who, view), "jobs": jobs, "every": EVERY_TENANT,
        "more_jobs": view.jobs - len(jobs), "year": year_of_calendar(calendar, chosen, _today()), "chosen": chosen,
        "before": f"{here}&year={chosen - 1}", "after": f"{here}&year={chosen + 1}", "dates": _dates(view, chosen),
        "as_json": json.dumps(content_of(view), ensure_ascii=False, indent=2),
    })


def _owner(request: Request) -> str | None:
    return request.query_params.get("tenant") or None


def _year(text: str | None) -> int:
    if text is None:
        return _today().year
    if not text.isascii() or not text.isdigit() or not 1 < int(text[:5]) < 9999:  # noqa: PLR2004 - of dates
        raise Unprocessable([Problem("year", f"must be a year, not {text[:20]!r}")])
    return int(text[:5])


def _dates(view: CalendarView, year: int) -> list[tuple[date, str, bool]]:
    """Return the listed dates of a year with their names, and whether each is open."""
    return sorted(
        (date.fromisoformat(day), title, opened) for days, opened in ((view.closed, False), (view.open, True))
        for day, title in days.items() if day.startswith(f"{year:04}-")
    )


@router.get("/calendars/{name}/edit")
async def edit_page(request: Request, site: SiteParam, who: Visitor, name: str) -> Response:
    """Show a calendar in the form."""
    check(who, Permission.WRITE)
    view = await site.services.calendars.get(who, name, _owner(request))
    return _form_page(request, site, who, calendar_values(content_of(view)), {}, stored=view)


@router.post("/calendars/{name}/edit")
async def edit(request: Request, site: SiteParam, who: Visitor, form: Form, name: str) -> Response:
    """Replace a calendar with the form, unless it was changed since the form was opened."""
    view = await site.services.calendars.get(who, name, _owner(request))
    fields, problems = read_calendar_form(form)
    if not problems and form.get("version") != str(view.version):
        status = PreconditionFailed.status
        return _form_page(request, site, who, form, {}, stored=view, status=status, problem=_CHANGED)
    problems = problems or await save(site, who, view.name, view.tenant, fields)
    if problems:
        return _form_page(request, site, who, form, problems, stored=view, status=422)
    used = f": {count(view.jobs, 'job')} will be planned again" if view.jobs else ""
    return redirect_to(calendar_address(view.name, view.tenant), Flash(f"Saved{used}"))


@router.post("/calendars/{name}/delete")
async def delete(site: SiteParam, who: Visitor, form: Form, name: str, tenant: str | None = None) -> Response:  # noqa: ARG001 - checked
    """Delete a calendar that no job uses."""
    try:
        await site.services.calendars.delete(who, name, tenant)
    except Conflict as error:
        owner = tenant or who.tenant or "default"
        return redirect_to(calendar_address(name, owner), Flash(error.detail, bad=True))
    return redirect_to("/calendars", Flash(f"Deleted: {name}"))
