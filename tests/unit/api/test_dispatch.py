"""The short way to a route answers as FastAPI's own would, and leaves nothing of the API to the long one."""

import asyncio
import json
import time
from urllib.parse import quote

import jwt
import pytest

from scheduler.api import app as application
from scheduler.api.dispatch import Dispatch
from scheduler.api.services import services
from scheduler.settings import Settings
from tools.schemas import openapi

SECRET = "a secret of at least thirty-two bytes, for tests"
TOKEN = jwt.encode({"sub": "ann", "exp": int(time.time()) + 3600, "role": "admin"}, SECRET, "HS256")
JOB = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"


@pytest.fixture(scope="module")
def app():
    """The application without a database: what is asked here gets no further than its arguments, or to a 503."""
    settings = Settings(jwt_key=SECRET, api_rate=1_000_000, database_url="postgresql://127.0.0.1:1/none")
    made = services(settings)
    yield application.build(made)
    made.database.close()


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


def paths():
    return [(method.upper(), path) for path, found in json.loads(openapi())["paths"].items() for method in found]


@pytest.mark.parametrize(("method", "path"), paths())
def test_every_route_of_the_document_is_served_the_short_way(app, method, path):
    async def long_way(*_):
        raise AssertionError("left to FastAPI")

    short = Dispatch(app, application._routes())
    short._app = type("App", (), {"__call__": long_way, "state": app.state,
                                  "exception_handlers": app.exception_handlers})()
    for token in (None, "nonsense"):
        if path != "/health":
            assert ask(short, method, path.replace("{id}", JOB).replace("{event_id}", JOB), token=token)[0] == 401


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
GET /api/v1/jobs?limit=10&limit=900
GET /api/v1/jobs?limit=900&limit=10
GET /api/v1/jobs?colour=red&colour=blue
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
def test_both_ways_lead_to_the_same_answer(app, asked):
    method, _, rest = asked.partition(" ")
    path, _, query = rest.partition("?")
    short = Dispatch(app, application._routes())
    for token in (TOKEN, None):
        assert ask(short, method, path, query, token) == ask(app, method, path, query, token)
