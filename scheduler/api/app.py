"""Build the ASGI application: routes, exception handlers and middleware."""

from collections.abc import Iterator

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from scheduler import __version__
from scheduler.api import console, openapi
from scheduler.api.cors import ApiCors
from scheduler.api.dispatch import DirectRoute, Dispatch
from scheduler.api.problems import ApiError, ServiceUnavailable, Unprocessable, problem
from scheduler.api.request_middleware import App, RequestMiddleware
from scheduler.api.requests import SECURED
from scheduler.api.routes import calendars, dead, delayed, health, jobs, overview, preview, runs
from scheduler.api.services import Services
from scheduler.domain.errors import Problem, Rejected, Unavailable
from scheduler.domain.message_parser import describe_error

PREFIX = "/api/v1"
_UNDER_PREFIX = (jobs, runs, preview, overview, dead, delayed, calendars)


def build(services: Services | None = None) -> FastAPI:
    """Return the application without its middleware; the OpenAPI document needs no services."""
    app = FastAPI(
        title="scheduler", version=__version__, openapi_url="/api/openapi.json", docs_url=None, redoc_url=None,
        redirect_slashes=False, separate_input_output_schemas=False,
        description="A scheduler for RabbitMQ and Postgres: jobs, their runs and their results.",
    )
    app.state.services = services
    api = APIRouter(prefix=PREFIX, dependencies=SECURED)
    for module in _UNDER_PREFIX:
        api.include_router(module.router)
    app.include_router(api)
    app.include_router(health.router)
    console.mount(app, services)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(Rejected, _rejected)
    app.add_exception_handler(Unavailable, _unavailable)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    openapi.describe(app)
    return app


def application(app: FastAPI, cors_origins: tuple[str, ...] = ()) -> App:
    """Wrap FastAPI in the direct routes and the middleware."""
    served = RequestMiddleware(Dispatch(app, direct_routes()))
    return ApiCors(served, cors_origins) if cors_origins else served


def direct_routes() -> Iterator[tuple[str, DirectRoute]]:
    """Yield the direct routes with their full paths."""
    for prefix, module in (*((PREFIX, router_module) for router_module in _UNDER_PREFIX), ("", health)):
        for route in module.router.routes:
            if isinstance(route, DirectRoute):
                yield prefix + route.path_format, route


async def _api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 - the type it is registered for
    return error.response()


async def _rejected(_: Request, error: Exception) -> Response:
    assert isinstance(error, Rejected)  # noqa: S101 - the type it is registered for
    return Unprocessable(error.problems).response()


async def _unavailable(_: Request, error: Exception) -> Response:
    return ServiceUnavailable(str(error)).response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - the type it is registered for
    page = console.error_page(request, error.status_code, "There is no such page.")
    if page is not None:
        return page
    return problem(error.status_code, str(error.detail), headers=error.headers)


async def _invalid(_: Request, error: Exception) -> Response:
    """Describe errors in a path or a query like errors in a command."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - the type it is registered for
    messages: dict[str, str] = {}
    for detail in error.errors():
        field = ".".join(str(part) for part in detail["loc"][1:2]) or "query"
        messages.setdefault(field, describe_error(detail, field))
    return Unprocessable([Problem(field, message) for field, message in messages.items()]).response()
