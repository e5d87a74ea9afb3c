"""The application: routes, what becomes of errors, and the gate around it."""

from collections.abc import Iterator

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from scheduler import __version__
from scheduler.api import console, openapi
from scheduler.api.dispatch import DirectRoute, Dispatch
from scheduler.api.problems import ApiError, ServiceUnavailable, Unprocessable, problem
from scheduler.api.request_middleware import App, RequestMiddleware
from scheduler.api.requests import SECURED
from scheduler.api.routes import dead, delayed, health, jobs, overview, preview, runs
from scheduler.api.services import Services
from scheduler.domain.errors import Problem, Rejected, Unavailable
from scheduler.domain.message_parser import describe_error

PREFIX = "/api/v1"
_UNDER_PREFIX = (jobs, runs, preview, overview, dead, delayed)


def build(services: Services | None = None) -> FastAPI:
    """Return the application without its gate; the OpenAPI document needs no services."""
    app = FastAPI(
        title="scheduler", version=__version__, openapi_url="/api/openapi.json", docs_url=None, redoc_url=None,
        redirect_slashes=False, separate_input_output_schemas=False,
        description="A reminder engine for RabbitMQ and Postgres: jobs, runs and what became of them.",
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


def application(app: FastAPI) -> App:
    """Return what a server serves: the middleware, and behind it the direct routes and FastAPI."""
    return RequestMiddleware(Dispatch(app, direct_routes()))


def direct_routes() -> Iterator[tuple[str, DirectRoute]]:
    """Yield the direct routes with their whole paths."""
    for prefix, module in (*((PREFIX, each) for each in _UNDER_PREFIX), ("", health)):
        for route in module.router.routes:
            if isinstance(route, DirectRoute):
                yield prefix + route.path_format, route


async def _api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 - as it was registered
    return error.response()


async def _rejected(_: Request, error: Exception) -> Response:
    assert isinstance(error, Rejected)  # noqa: S101 - as it was registered
    return Unprocessable(error.problems).response()


async def _unavailable(_: Request, error: Exception) -> Response:
    return ServiceUnavailable(str(error)).response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - as it was registered
    page = console.error_page(request, error.status_code, "There is no such page.")
    if page is not None:
        return page
    return problem(error.status_code, str(error.detail), headers=error.headers)


async def _invalid(_: Request, error: Exception) -> Response:
    """Tell of a path or a query in the words that a command would get."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as it was registered
    found: dict[str, str] = {}
    for detail in error.errors():
        field = ".".join(str(part) for part in detail["loc"][1:2]) or "query"
        found.setdefault(field, describe_error(detail, field))
    return Unprocessable([Problem(field, words) for field, words in found.items()]).response()
