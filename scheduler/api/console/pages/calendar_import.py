"""Import of a calendar from iCalendar or JSON: what a file changes is shown before it is saved."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.calendar_form import calendar_changes, content_of
from scheduler.api.console.formatting import count
from scheduler.api.console.pages.calendars import calendar_address, save
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, Site, SiteParam, Visitor, redirect_to
from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import NotFound
from scheduler.domain.calendar_file import CalendarFile, read_file
from scheduler.domain.icalendar import InvalidFile
from scheduler.views.calendars import CalendarView

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)


@router.get("/calendar/import")
async def import_page(
    request: Request, site: SiteParam, who: Visitor, name: str = "", tenant: str | None = None
) -> Response:
    """Ask for a file."""
    check(who, Permission.WRITE)
    return _page(request, site, who, {"name": name, "tenant": tenant or who.tenant or "default"})


def _page(
    request: Request, site: Site, who: Identity, values: Mapping[str, str], *,
    problems: Mapping[str, str] | None = None, preview: Mapping[str, Any] | None = None, status: int = 200,
) -> Response:
    shown = dict.fromkeys(("name", "tenant", "text"), "") | dict(values)
    return site.page(request, "calendar_import.html", {
        "who": who, "page": "calendars", "values": shown, "problems": dict(problems or {}), "preview": preview,
    }, status)


@router.post("/calendar/import")
async def import_file(request: Request, site: SiteParam, who: Visitor, form: Form) -> Response:
    """Show the changes of a file; save it if the visitor has seen them."""
    check(who, Permission.WRITE)
    name, owner = form.get("name", "").strip(), form.get("tenant") or who.tenant or "default"
    try:
        read = await site.services.compute.run(
            lambda: read_file(form.get("text", "").encode(), datetime.now(UTC).year)
        )
    except InvalidFile as error:
        return _page(request, site, who, form, problems={"file": str(error)}, status=422)
    stored = await _stored(site, who, name, owner)
    fields = _merged(read, stored)
    if form.get("version") == _version(stored):
        problems = await save(site, who, name, owner, fields)
        if not problems:
            return redirect_to(calendar_address(name, owner), Flash(f"Imported: {name}{_replanned(stored)}"))
        return _page(request, site, who, form, problems=problems, status=422)
    return _page(request, site, who, form, preview=_preview(read, stored, fields))


def _merged(read: CalendarFile, stored: CalendarView | None) -> dict[str, Any]:
    """Return the calendar: an iCalendar file has no weekend and no open days, so those stay as they are."""
    if not read.is_icalendar:
        return read.fields
    before = {"weekend": ["SA", "SU"]} if stored is None else content_of(stored)
    return {name: before[name] for name in ("weekend", "open") if name in before} | read.fields


def _preview(read: CalendarFile, stored: CalendarView | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    changes, number = calendar_changes({} if stored is None else content_of(stored), fields)
    return {"changes": changes, "more": number - len(changes), "number": number, "notes": read.notes,
            "version": _version(stored), "is_new": stored is None, "jobs": 0 if stored is None else stored.jobs}


async def _stored(site: Site, who: Identity, name: str, owner: str) -> CalendarView | None:
    try:
        view = await site.services.calendars.get(who, name, owner)
    except NotFound:
        return None
    return view if view.tenant == owner else None


def _version(stored: CalendarView | None) -> str:
    """Return the version that a preview compared with."""
    return "new" if stored is None else str(stored.version)


def _replanned(stored: CalendarView | None) -> str:
    return f": {count(stored.jobs, 'job')} will be planned again" if stored is not None and stored.jobs else ""
