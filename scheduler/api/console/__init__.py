"""The web console: pages for people, on the API's services."""

from fastapi import FastAPI

from scheduler.api.console.pages import audit, dead, edit, entry, job, jobs, overview, runs
from scheduler.api.console.site import Site
from scheduler.api.services import Services

_PAGES = (entry, overview, jobs, edit, job, runs, dead, audit)


def mount(app: FastAPI, services: Services | None) -> None:
    """Add the console's pages to the application; they are no part of the OpenAPI document."""
    for module in _PAGES:
        app.include_router(module.router)
    if services is not None:
        app.state.console = Site(services)
