"""The audit: changes and their authors."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.list_filters import address, parse_filters, run_filter
from scheduler.api.console.site import ConsoleRoute, Site, SiteParam, Visitor
from scheduler.postgres.audit import AuditFilter
from scheduler.views.base import Page
from scheduler.views.overview import AuditView

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_MAX_LENGTH = 200
_FILTERS = ("who", "via", "action", "kind", "id", "tenant", "since", "until")
_SOURCES = ("api", "amqp", "cli", "console")
_KINDS = ("job", "run", "calendar", "dead", "delayed")


@router.get("/audit")
async def audit_page(request: Request, site: SiteParam, who: Visitor, after: str | None = None) -> Response:
    """List changes, newest first."""
    filters = parse_filters(request.query_params, _FILTERS)
    parsed, problems = _audit_filter(filters)
    page: Page[AuditView] = Page([])
    if not problems:
        page = await site.services.reads.audit(who, parsed, after=after or None)
    shown = dict.fromkeys(_FILTERS) | filters
    return site.page(request, "audit.html", {
        "who": who, "page": "audit", "audit": await named_rows(site, page.items), "show_job": True,
        "filters": shown, "filtered": bool(filters), "problems": problems, "sources": _SOURCES, "kinds": _KINDS,
        "next": address("/audit", filters, {"after": page.next}) if page.next else None,
        "first": address("/audit", filters) if after else None,
    }, 422 if problems else 200)


def _audit_filter(filters: Mapping[str, str]) -> tuple[AuditFilter, dict[str, str]]:
    """Return the filter for the service, and its problems by field."""
    problems = {name: f"is one of {', '.join(allowed)}, not {filters[name][:40]!r}"
                for name, allowed in (("via", _SOURCES), ("kind", _KINDS))
                if name in filters and filters[name] not in allowed}
    run_times, time_problems = run_filter({name: filters[name] for name in ("since", "until") if name in filters})
    return AuditFilter(
        who=filters.get("who"), via=filters.get("via"), action=filters.get("action"), kind=filters.get("kind"),
        thing=filters.get("id"), tenant=filters.get("tenant"), since=run_times.since, until=run_times.until,
    ), problems | time_problems


async def named_rows(site: Site, entries: Sequence[AuditView]) -> list[dict[str, Any]]:
    """Return entries with the names of their jobs and runs."""
    ids = {kind: [str(entry.id) for entry in entries if entry.kind == kind and _is_uuid(entry.id)]
           for kind in ("job", "run")}
    names = await site.services.reads.job_names(ids["job"]) | await site.services.reads.run_names(ids["run"])
    return [row | {"name": names.get(str(row["id"]))} for row in audit_rows(entries)]


def _is_uuid(text: object) -> bool:
    try:
        UUID(str(text))
    except ValueError:
        return False
    return True


def audit_rows(entries: Iterable[AuditView]) -> list[dict[str, Any]]:
    """Return entries with their changes, field by field."""
    return [entry.model_dump() | {"changes": field_changes(entry.before, entry.after), "name": None}
            for entry in entries]


def field_changes(before: Any, after: Any) -> list[tuple[str, str, str]]:
    """Return the fields that differ, with both values as short strings."""
    old, new = (value if isinstance(value, dict) else {} for value in (before, after))
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return [(name, _short(old.get(name)), _short(new.get(name))) for name in names]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + "…"
