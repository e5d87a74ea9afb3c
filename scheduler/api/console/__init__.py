"""The web console: pages for people, on the API's services."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from scheduler.api.console.pages import (
    audit,
    dead_letters,
    delayed_messages,
    event_stream,
    job,
    job_form,
    jobs,
    login,
    overview,
    runs,
)
from scheduler.api.console.site import Site
from scheduler.api.services import Services

_PAGES = (login, overview, event_stream, jobs, job_form, job, runs, dead_letters, delayed_messages, audit)


def error_page(request: Request, status: int, detail: str) -> Response | None:
    """Return an error as a page for people; None where a program asked, or something of the API was asked for."""
    path, accepted = request.url.path, request.headers.get("accept", "")
    if path.startswith(("/api", "/health")) or "text/html" not in accepted:
        return None
    site: Site | None = getattr(request.app.state, "console", None)
    return None if site is None else site.problem(request, status, detail)


def mount(app: FastAPI, services: Services | None) -> None:
    """Add the console's pages to the application; they are no part of the OpenAPI document."""
    for module in _PAGES:
        app.include_router(module.router)
    if services is not None:
        app.state.console = Site(services)
