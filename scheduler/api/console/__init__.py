"""The web console: HTML pages that use the API's services."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from scheduler.api.console.pages import (
    audit,
    backfill,
    bulk,
    calendar_import,
    calendars,
    dead_letters,
    delayed_messages,
    event_stream,
    find,
    job,
    job_day,
    job_form,
    job_types,
    job_versions,
    jobs,
    load,
    login,
    overview,
    run_compare,
    runs,
    sign_in,
    tenants,
)
from scheduler.api.console.site import Site
from scheduler.api.services import Services

_PAGES = (
    sign_in, login, overview, find, event_stream, jobs, bulk, job_types, job_form, job_day, job_versions, job,
    runs, run_compare, backfill, calendar_import, calendars, load, dead_letters, delayed_messages, tenants, audit,
)


def error_page(request: Request, status: int, detail: str) -> Response | None:
    """Return an error as an HTML page; None for the API's paths and for clients that do not accept HTML."""
    path, accepted = request.url.path, request.headers.get("accept", "")
    if path.startswith(("/api", "/health")) or "text/html" not in accepted:
        return None
    site: Site | None = getattr(request.app.state, "console", None)
    return None if site is None else site.problem(request, status, detail)


def mount(app: FastAPI, services: Services | None) -> None:
    """Add the console's pages to the application, without adding them to the OpenAPI document."""
    for module in _PAGES:
        app.include_router(module.router)
    if services is not None:
        app.state.console = Site(services)
