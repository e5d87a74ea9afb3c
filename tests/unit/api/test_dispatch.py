"""Direct routes run the same checks and respond the same as through FastAPI."""

import asyncio
import json
import time
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock
from urllib.parse import quote

import jwt
import pytest
from fastapi import APIRouter, Depends, FastAPI

from scheduler.api import app as application
from scheduler.api import request_middleware, requests
from scheduler.api.dispatch import DirectRoute, Dispatch
from scheduler.api.identity import Identity
from scheduler.api.problems import NotFound, TooManyRequests
from scheduler.api.services import make_services
from scheduler.settings import Settings
from tools.schemas import openapi

SECRET = "a secret of at least thirty-two bytes, for tests"
TOKEN = jwt.encode({"sub": "ann", "exp": int(time.time()) + 3600, "role": "admin"}, SECRET, "HS256")
JOB = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"


@pytest.fixture(scope="module")
def app():
    """The application without a database: requests get no further than their arguments, or to a 503."""
    settings = Settings(jwt_key=SECRET, api_rate=1_000_000, database_url="postgresql://127.0.0.1:1/none")
    made = make_services(settings)
    yield application.build(made)
    made.close()


def ask(served, method, path, query="", token=TOKEN):
    """Ask an application as a server does; return status, headers and body."""
    headers = [(b"host", b"a")] + ([(b"authorization", f"Bearer {token}".encode())] if token else [])
    scope = {"type": "http", "method": method, "path": path, "raw_path": quote(path).encode(), "headers": headers,
             "query_string": query.encode(), "client": ("192.0.2.7", 1), "server": ("a", 80), "scheme": "http",
             "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"}, "state": {}}
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(served(scope, receive, send))
    told = {name: value for name, value in sent[0]["headers"] if name != b"content-length"}
    return sent[0]["status"], told, b"".join(each.get("body", b"") for each in sent[1:])


def routes():
    """Every route of the OpenAPI document, which are the direct ones."""
    return [(method.upper(), path.replace("{id}", JOB).replace("{event_id}", JOB).replace("{n}", "1"))
            for path, found in json.loads(openapi())["paths"].items() for method in found]


def test_every_route_of_the_document_is_direct():
    direct = {(method, path) for path, route in application.direct_routes() for method in route.methods}
    assert {(method.upper(), path) for path, found in json.loads(openapi())["paths"].items()
            for method in found} == direct


@pytest.mark.parametrize(("path", "route"), [*application.direct_routes()])
def test_a_direct_route_runs_each_dependency_that_fastapi_would(path, route):
    needed = {dependency.call for dependency in route.dependant.dependencies}
    declared = needed - {requests.get_services, requests._bearer}
    assert set(route.checks) == declared
    assert len(route.checks) == (0 if path == "/health" else 1)


def test_the_only_dependency_of_the_router_is_for_the_document():
    assert [each.dependency for each in requests.SECURED] == [requests._bearer]
    assert not requests._bearer.auto_error


class Recorder:
    """A service that notes who asked it for what, and knows nothing."""

    def __init__(self, calls):
        self._calls = calls

    def __getattr__(self, name):
        async def call(who, *arguments, **options):
            given = [argument for argument in arguments if not callable(argument)]
            self._calls.append((name, who, given, options))
            raise NotFound("Nothing is known here.")

        return call


def record(monkeypatch, made, *, limit):
    """Return the services with recorders and their calls: tenants and the audit depend only on the identity."""
    calls = []

    async def admit(who):
        calls.append(("admit", who))
        if not limit:
            raise TooManyRequests("Too many.", 1)

    parts = {name: Recorder(calls) for name in ("reads", "actions", "job_import", "dead", "delayed", "calendars")}
    made = replace(made, limit=SimpleNamespace(admit=admit), **parts)

    def count(route, status):
        calls.append((route.removeprefix(application.PREFIX), status))  # FastAPI leaves out the prefix
        return Mock(), Mock()

    def info(_, **fields):
        calls.append(tuple(fields[name] for name in ("method", "status", "sub", "client")))

    monkeypatch.setattr(request_middleware.metrics, "of_route", count)
    monkeypatch.setattr(request_middleware, "log", SimpleNamespace(info=info))
    return made, calls


TOKENS = {
    "no token": None, "nonsense": "nonsense", "admin": TOKEN,
    **{f"{role} of {tenant}": jwt.encode(
        {"sub": role, "exp": int(time.time()) + 86400, "role": role, "tenant": tenant}, SECRET, "HS256")
       for role in ("none", "viewer", "operator", "admin") for tenant in ("*", "acme")},
}


@pytest.mark.parametrize("limit", [True, False])
@pytest.mark.parametrize(("method", "path"), routes())
def test_both_ways_run_the_same_checks(app, monkeypatch, method, path, limit):
    """Authentication, role, rate limit, the identity for tenant and audit, metrics and the access log."""
    made, calls = record(monkeypatch, app.state.services, limit=limit)
    monkeypatch.setitem(app.state._state, "services", made)
    for token in TOKENS.values():
        responses = []
        for served in (application.application(app), request_middleware.RequestMiddleware(app)):
            responses.append((ask(served, method, path, token=token), list(calls)))
            calls.clear()
        direct, through_fastapi = responses
        assert direct == through_fastapi
        served_by = [each[0] for each in direct[1] if each[1:] and isinstance(each[1], Identity)]
        if token == TOKEN and path != "/health":
            assert len(served_by) == (2 if limit else 1)  # the rate limit, and then a service


def test_a_route_that_cannot_be_direct_is_an_error_when_it_is_declared():
    router = APIRouter(route_class=DirectRoute)
    with pytest.raises(TypeError, match="/a: a direct route cannot take page: int"):
        @router.get("/a")
        async def page(page: int):
            """Its query is not a model."""

    with pytest.raises(TypeError, match="/b: a direct route runs no `dependencies`"):
        @router.get("/b", dependencies=[Depends(requests.authenticate)])
        async def secured():
            """Its check would not run."""


def test_middleware_in_front_of_direct_routes_is_an_error():
    app = FastAPI()
    app.middleware("http")(lambda request, call_next: call_next(request))
    with pytest.raises(TypeError, match="middleware"):
        Dispatch(app, [])


ASKED = f"""
GET /health
HEAD /health
POST /health
GET /health/
GET /api/v1/jobs/x
GET /api/v1/jobs/{JOB}
GET /api/v1/jobs/{JOB.upper()}
GET /api/v1/jobs/{{{JOB}}}
GET /api/v1/jobs/urn:uuid:{JOB}
GET /api/v1/jobs/{JOB}/
GET /api/v1/jobs/{JOB}/nothing
GET /api/v1/jobs/
GET /api/v1//jobs
GET /api/v1/jobs/é
GET /api/v1/jobs/{{}}
PATCH /api/v1/jobs/{JOB}
OPTIONS /api/v1/jobs
GET /api/v1/jobs?limit=0
GET /api/v1/jobs?limit=x&status=sad&colour=red
GET /api/v1/jobs?q=
GET /api/v1/jobs?limit=
GET /api/v1/jobs?q=a%00b
GET /api/v1/jobs?after=x
GET /api/v1/jobs?q=%ff%fe&&=&a
GET /api/v1/jobs/x/occurrences?count=0&from=now
GET /api/v1/jobs/{JOB}/occurrences?from=now
GET /api/v1/jobs/{JOB}/occurrences?start=now
GET /api/v1/runs?since=yesterday
GET /api/v1/runs/x
GET /api/v1/delayed/x
POST /api/v1/jobs/pause?limit=3
POST /api/v1/jobs/pause
POST /api/v1/jobs
PUT /api/v1/jobs/{JOB}
POST /api/v1/preview
GET /nowhere
GET /api/openapi.json
""".split("\n")[1:-1]


@pytest.mark.parametrize("asked", ASKED)
def test_both_ways_give_the_same_response(app, asked):
    method, _, rest = asked.partition(" ")
    path, _, query = rest.partition("?")
    short = Dispatch(app, application.direct_routes())
    for token in (TOKEN, None):
        assert ask(short, method, path, query, token) == ask(app, method, path, query, token)


@pytest.mark.parametrize(("method", "path", "query", "field"), [
    ("GET", "/api/v1/jobs", "status=pending&status=done", "status"),
    ("POST", "/api/v1/jobs/cancel", "job_type=a&job_type=b", "job_type"),
    ("POST", "/api/v1/jobs/cancel", "job_type=", "job_type"),
    ("POST", "/api/v1/runs/retry", "status=dead&job_type=", "job_type"),
])
def test_a_repeated_filter_and_an_empty_one_of_a_bulk_action_are_rejected(app, method, path, query, field):
    status, _, body = ask(application.application(app), method, path, query)
    assert status == 422
    assert [error["field"] for error in json.loads(body)["errors"]] == [field]
