"""The audit: changes and their authors."""

import json
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.list_filters import address
from scheduler.api.console.site import ConsoleRoute, SiteParam, Visitor
from scheduler.postgres.audit import AuditFilter
from scheduler.views.overview import AuditView

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_MAX_LENGTH = 200


@router.get("/audit")
async def audit_page(request: Request, site: SiteParam, who: Visitor, after: str | None = None) -> Response:
    """List changes, newest first."""
    page = await site.services.reads.audit(who, AuditFilter(), after=after or None)
    return site.page(
        request,
        "audit.html",
        {
            "who": who,
            "page": "audit",
            "audit": audit_rows(page.items),
            "show_job": True,
            "next": address("/audit", {"after": page.next}) if page.next else None,
            "first": "/audit" if after else None,
        },
    )


def audit_rows(entries: Iterable[AuditView]) -> list[dict[str, Any]]:
    """Return entries with their changes, field by field."""
    return [entry.model_dump() | {"changes": _changes(entry.before, entry.after)} for entry in entries]


def _changes(before: Any, after: Any) -> list[tuple[str, str, str]]:
    old, new = (value if isinstance(value, dict) else {} for value in (before, after))
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return [(name, _short(old.get(name)), _short(new.get(name))) for name in names]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + "…"
