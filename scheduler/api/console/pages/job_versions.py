"""The versions of a job: the requests that defined it, what each changed, and restore."""

import json
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.console.list_filters import address
from scheduler.api.console.pages.audit import field_changes
from scheduler.api.console.session import Flash
from scheduler.api.console.site import ConsoleRoute, Form, SiteParam, Visitor, redirect_to
from scheduler.views.base import Page
from scheduler.views.job_versions import JobVersionView
from scheduler.views.jobs import job_view

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_LISTED = 20


@router.get("/jobs/{job_id}/versions")
async def versions_page(
    request: Request, site: SiteParam, who: Visitor, job_id: UUID, after: str | None = None
) -> Response:
    """List the versions, newest first."""
    job = job_view(await site.services.reads.job_row(who, job_id))
    page = await site.services.reads.versions(who, job_id, _LISTED, after or None)
    here = f"/jobs/{job_id}/versions"
    return site.page(request, "job_versions.html", {
        "who": who, "page": "jobs", "job": job, "versions": _rows(page), "newest": None if after else 0,
        "next": address(here, {"after": page.next}) if page.next else None, "first": here if after else None,
    })


def _rows(page: Page[JobVersionView]) -> list[dict[str, Any]]:
    """Return the versions with their changes; the predecessor of the last one is on the next page."""
    requests = [_request(version) for version in page.items]
    before = [*requests[1:], None]
    return [
        {"version": version.version, "at": version.at, "by": version.by, "via": version.via, "request": request,
         "changes": [] if former is None else field_changes(former, request)}
        for version, request, former in zip(page.items, requests, before, strict=True)
    ]


def _request(version: JobVersionView) -> Any:
    """Return the request as a value, or as text if it is nested too deeply."""
    text = getattr(version.request, "text", "{}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@router.post("/jobs/{job_id}/versions/{number}/restore")
async def restore(site: SiteParam, who: Visitor, form: Form, job_id: UUID, number: int) -> Response:  # noqa: ARG001 - checked
    """Request a version again."""
    await site.services.actions.restore(who, await site.services.reads.version(who, job_id, number))
    return redirect_to(f"/jobs/{job_id}", Flash(f"Restored version {number}"))
