"""What routes take of a request: who asks, its body, its ETags and its filters."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from scheduler.api.identity import Identity, Permission, check
from scheduler.api.problems import Unauthorized
from scheduler.api.reads import MOST_LISTED, USUAL_LIMIT
from scheduler.api.services import Services
from scheduler.domain.messages import Instant, Priority
from scheduler.ops import traces
from scheduler.views.jobs import JobState
from scheduler.views.runs import RunState


async def services(request: Request) -> Services:
    """Return the services of the application."""
    found: Services = request.app.state.services
    return found


async def identified(request: Request) -> Identity:
    """Return whose token the request carries, and count it; raise Unauthorized or TooManyRequests."""
    found: Services = request.app.state.services
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("Send a token: Authorization: Bearer …", error="")
    who = await found.identify(token.strip(), request.client.host if request.client else None)
    parent = request.headers.get("traceparent")
    if traces.trace_id(parent) is not None:
        who = replace(who, traceparent=parent, tracestate=request.headers.get("tracestate"))
    request.scope.setdefault("state", {})["sub"] = who.sub  # for the access log
    await found.limit.admit(who)
    return who


def needing(need: Permission) -> Callable[[Request], Awaitable[Identity]]:
    """Return a dependency that lets in those who may do this, before anything else of the request is looked at."""

    async def allowed(request: Request) -> Identity:
        who = await identified(request)
        check(who, need)
        return who

    return allowed


async def permitted(request: Request) -> Identity:
    """Return who asks; raise Forbidden for who may not read, or write where the method is for that.

    So a route that says no more is closed to the wrong roles before its path, its query or its body is judged.
    """
    who = await identified(request)
    check(who, Permission.READ if request.method in _READING else Permission.WRITE)
    return who


_READING = ("GET", "HEAD")
# For the OpenAPI document; the header itself is read above, so that the answer is a problem like any other.
_bearer = HTTPBearer(bearerFormat="JWT", auto_error=False, description="A JWT with sub, exp, role and tenant.")
Serve = Annotated[Services, Depends(services)]
Anyone = Annotated[Identity, Depends(identified)]
Who = Annotated[Identity, Depends(permitted)]
Reader = Annotated[Identity, Depends(needing(Permission.READ))]
Auditor = Annotated[Identity, Depends(needing(Permission.AUDIT))]
ReaderOfAll = Annotated[Identity, Depends(needing(Permission.READ_ALL))]
WriterOfAll = Annotated[Identity, Depends(needing(Permission.WRITE_ALL))]
DeadLetterAdmin = Annotated[Identity, Depends(needing(Permission.DEAD_LETTERS))]
SECURED = [Depends(_bearer)]


def if_match(request: Request) -> list[str] | None:
    """Return the ETags of If-Match, None where there is no such header."""
    header = request.headers.get("if-match")
    if header is None:
        return None
    return [each.strip().removeprefix("W/").strip('"') for each in header.split(",")]


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not hold the character NUL")
    return text


Text = Annotated[str, Field(max_length=200), AfterValidator(_storable)]
RoutingKey = Annotated[str, Field(max_length=255), AfterValidator(_storable)]
Cursor = Annotated[str, Field(max_length=500)]


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class JobsFilter(_Query):
    """Which jobs."""

    status: JobState | None = None
    job_type: Text | None = None
    tenant: Text | None = None
    priority: Priority | None = None
    q: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None, description="How an id, a name or a type begins."
    )


class _Page(_Query):
    limit: int = Field(default=USUAL_LIMIT, ge=1, le=MOST_LISTED)
    after: Cursor | None = Field(default=None, description="`next` of the last answer.")


class JobsQuery(JobsFilter, _Page):
    """A page of jobs."""


class RunsFilter(_Query):
    """Which runs."""

    status: RunState | None = None
    job_type: Text | None = None
    tenant: Text | None = None
    since: Instant | None = Field(default=None, description="Due then or later.")
    until: Instant | None = Field(default=None, description="Due before then.")


class RunsQuery(RunsFilter, _Page):
    """A page of runs."""


class AuditQuery(_Page):
    """A page of the audit."""

    who: Text | None = None
    via: Literal["api", "amqp", "cli"] | None = None
    action: Text | None = None
    kind: Text | None = None
    id: Text | None = Field(default=None, description="Of a job, a run or a dead letter.")
    tenant: Text | None = None
    since: Instant | None = None
    until: Instant | None = None


class PageQuery(_Page):
    """A page of anything."""


class OccurrencesQuery(_Query):
    """Which occurrences of a job."""

    count: int = Field(default=10, ge=1, le=1000)
    start: Instant | None = Field(default=None, alias="from", description="Not before then.")
    end: Instant | None = Field(default=None, alias="to", description="Before then.")

