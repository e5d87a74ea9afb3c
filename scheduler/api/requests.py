"""Parameters of routes: the caller's identity, ETags and query filters."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import Unauthorized
from scheduler.api.reads import DEFAULT_LIMIT, MAX_LIMIT
from scheduler.api.services import Services
from scheduler.domain.messages import Instant, Priority
from scheduler.ops import traces
from scheduler.views.jobs import JobState
from scheduler.views.runs import RunState


async def get_services(request: Request) -> Services:
    """Return the services of the application."""
    services: Services = request.app.state.services
    return services


async def authenticate(request: Request) -> Identity:
    """Return the identity of the request's token and charge it. Raises Unauthorized or TooManyRequests."""
    services: Services = request.app.state.services
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("Send a token: Authorization: Bearer …", error="")
    who = await services.identify(token.strip(), request.client.host if request.client else None)
    parent = request.headers.get("traceparent")
    if traces.trace_id(parent) is not None:
        who = replace(who, traceparent=parent, tracestate=request.headers.get("tracestate"))
    request.scope.setdefault("state", {})["sub"] = who.sub  # for the access log
    await services.limit.admit(who)
    return who


def require(permission: Permission) -> Callable[[Request], Awaitable[Identity]]:
    """Return a dependency that checks a permission before the rest of the request is parsed."""

    async def allowed(request: Request) -> Identity:
        who = await authenticate(request)
        check(who, permission)
        return who

    return allowed


async def authorize(request: Request) -> Identity:
    """Return the caller. Raises Forbidden if it may not read or, for other methods than GET and HEAD, write.

    So by default a route checks the role before it parses its path, query or body.
    """
    who = await authenticate(request)
    check(who, Permission.READ if request.method in _READING else Permission.WRITE)
    return who


_READING = ("GET", "HEAD")
# For the OpenAPI document; `authenticate` reads the header, so that errors are problem details.
_bearer = HTTPBearer(bearerFormat="JWT", auto_error=False, description="A JWT with sub, exp, role and tenant.")
Api = Annotated[Services, Depends(get_services)]
Authenticated = Annotated[Identity, Depends(authenticate)]
Who = Annotated[Identity, Depends(authorize)]
Reader = Annotated[Identity, Depends(require(Permission.READ))]
Auditor = Annotated[Identity, Depends(require(Permission.AUDIT))]
ReaderOfAll = Annotated[Identity, Depends(require(Permission.READ_ALL))]
WriterOfAll = Annotated[Identity, Depends(require(Permission.WRITE_ALL))]
DeadLetterAdmin = Annotated[Identity, Depends(require(Permission.DEAD_LETTERS))]
SECURED = [Depends(_bearer)]


def if_match(request: Request) -> list[str] | None:
    """Return the ETags in If-Match, None without this header."""
    header = request.headers.get("if-match")
    if header is None:
        return None
    return [etag.strip().removeprefix("W/").strip('"') for etag in header.split(",")]


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not contain the character NUL")
    return text


Text = Annotated[str, Field(max_length=200), AfterValidator(_storable)]
RoutingKey = Annotated[str, Field(max_length=255), AfterValidator(_storable)]
Cursor = Annotated[str, Field(max_length=500)]


class BaseQuery(BaseModel):
    """The parameters of a query: unknown ones are errors."""

    model_config = ConfigDict(extra="forbid")


class JobsFilter(BaseQuery):
    """Filters for jobs."""

    status: JobState | None = None
    job_type: Text | None = None
    tenant: Text | None = None
    priority: Priority | None = None
    q: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None, description="A prefix of the id, name or type."
    )


class _Page(BaseQuery):
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    after: Cursor | None = Field(default=None, description="`next` of the previous response.")


class JobsQuery(JobsFilter, _Page):
    """A page of jobs."""

    late: bool = Field(default=False, description="Jobs that are due and not emitted, the longest late first.")


class RunsFilter(BaseQuery):
    """Filters for runs."""

    status: RunState | None = None
    job_type: Text | None = None
    tenant: Text | None = None
    since: Instant | None = Field(default=None, description="Due at or after this instant.")
    until: Instant | None = Field(default=None, description="Due before this instant.")


class RunsQuery(RunsFilter, _Page):
    """A page of runs."""


class AuditQuery(_Page):
    """A page of the audit."""

    who: Text | None = None
    via: Literal["api", "amqp", "cli", "console"] | None = None
    action: Text | None = None
    kind: Text | None = None
    id: Text | None = Field(default=None, description="The id of a job, a run or a dead letter.")
    tenant: Text | None = None
    since: Instant | None = None
    until: Instant | None = None


class CancelQuery(BaseQuery):
    """How to cancel a job."""

    purge: bool = Field(default=False, description="Erase everything about it; for admins.")


class PageQuery(_Page):
    """A page of a list without filters."""


class OccurrencesQuery(BaseQuery):
    """The range of a job's occurrences."""

    count: int = Field(default=10, ge=1, le=1000)
    start: Instant | None = Field(default=None, alias="from", description="At or after this instant.")
    end: Instant | None = Field(default=None, alias="to", description="Before this instant.")

