"""Every route with every role, and with another tenant's data: no response contains another tenant's data."""

import json
from uuid import uuid4

import pytest
from api_support import Api, start_api
from support import iso, until, utc

from tools.schemas import openapi

SECRET_WORDS = "only-for-acme"
LEAST = {  # the least role that each kind of route takes; all others are for viewers
    "post": "operator", "put": "operator", "delete": "operator",
}
FREE = {("get", "/health")}
BULK = ("/jobs/pause", "/jobs/resume", "/jobs/cancel", "/runs/retry")
DEAD = "/api/v1/dead"
ALL_TENANTS = (DEAD, "/api/v1/delayed")
RANKS = {None: 0, "nonsense": 0, "viewer": 1, "operator": 2, "admin": 3}


def routes():
    document = json.loads(openapi())
    return [(method, path) for path, found in document["paths"].items() for method in found]


def least(method, path):
    if path.startswith((DEAD, "/api/v1/audit")):
        return "admin"
    return "viewer" if path.endswith("/preview") else LEAST.get(method, "viewer")


def asked(api: Api, method, path, job="", run=""):
    path = path.replace("{event_id}", run or str(uuid4())).replace("{n}", "1")
    path = path.replace("{id}", job if "/jobs/" in path and job else str(uuid4()))
    query = {"tenant": "acme"} if path.endswith(BULK) else {}
    body = None
    if path.endswith("/result"):
        body = {"attempt": 1, "status": "running"}
    elif method == "put" or (method == "post" and path.endswith("/jobs")):
        body = {"job_type": "taken over", "run_at": "2099-01-01T00:00:00Z"}
        body |= {"id": job} if job and method == "post" else {}
    elif path.endswith("/preview"):
        body = {"cron": "0 0 * * *"}
    return api.ask(method.upper(), path, body, **query)


@pytest.fixture(scope="module")
def acme(shared, served):
    """A tracked job of the tenant acme, and a run of it."""
    shared.start("producer").ready()
    api = served.as_("operator", "acme")
    job = api.job(name=SECRET_WORDS, job_type=SECRET_WORDS, payload={"a": SECRET_WORDS}, run={}, every="PT1H",
                  run_at=iso(utc()))
    run = until(lambda: api.get(f"/jobs/{job['id']}/runs").json["items"], "its first run")[0]
    return job["id"], run["event_id"]


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(("method", "path"), routes())
def test_each_route_requires_its_role(served, method, path):
    if (method, path) in FREE:
        assert asked(Api(served.url, None), method, path).status == 200
        return
    answer = asked(Api(served.url, None), method, path)
    assert (answer.status, answer.headers["Content-Type"]) == (401, "application/problem+json")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert asked(Api(served.url, "a.b.c"), method, path).status == 401
    for role, rank in RANKS.items():
        status = asked(served.as_(role, tenant="nobody"), method, path).status
        enough = rank >= RANKS[least(method, path)] and not path.startswith(ALL_TENANTS)
        assert (status == 403) is not enough, (role, status)
        assert status < 500 or path == "/health/detailed", status  # 503: no consumer or producer runs here
    if path.startswith(ALL_TENANTS):
        assert asked(served.as_("admin"), method, path).status in (200, 404)
        assert (asked(served.as_("operator"), method, path).status == 403) is path.startswith(DEAD)


@pytest.mark.parametrize(("method", "path"), routes())
def test_tenants_cannot_read_or_change_each_others_data(served, acme, method, path):
    job, run = acme
    owner = served.as_("admin", "acme")
    before = owner.get(f"/jobs/{job}")
    for role in ("viewer", "operator", "admin"):
        answer = asked(served.as_(role, "other"), method, path, job, run)
        assert SECRET_WORDS.encode() not in answer.body
        assert b"acme" not in answer.body.replace(b"must be other", b"")
        if "{" in path and path.startswith(("/api/v1/jobs", "/api/v1/runs")):
            assert answer.status in (403, 404), (role, answer.body)
        if (method, path) == ("post", "/api/v1/jobs") and role != "viewer":
            assert (answer.status, answer.errors) == (422, {"id": "is not available"})
        if method == "post" and path.endswith(BULK):
            assert answer.status == 403 or answer.json == {"matched": 0}
    after = owner.get(f"/jobs/{job}")
    assert (after.status, after.headers["ETag"]) == (200, before.headers["ETag"])


def test_a_tenant_token_creates_jobs_only_for_its_tenant(served):
    api = served.as_("operator", "acme")
    assert api.job()["tenant"] == "acme"
    answer = api.post("/jobs", {"job_type": "a", "run_at": "2099-01-01T00:00:00Z", "tenant": "other"})
    assert (answer.status, answer.errors) == (422, {"tenant": "must be acme, or left out"})
    capital = api.post("/jobs", {"job_type": "a", "run_at": "2099-01-01T00:00:00Z", "tenant": "ACME"})
    assert capital.status == 422
    assert {item["tenant"] for item in api.get("/jobs").json["items"]} == {"acme"}
    assert api.get("/jobs", tenant="other").json["items"] == []


def test_an_all_tenants_token_can_change_any_job(served):
    job = served.as_("operator", "globex").job(tenant="globex")
    everyone = served.as_("operator")
    assert everyone.get(f"/jobs/{job['id']}").json["tenant"] == "globex"
    assert everyone.post(f"/jobs/{job['id']}/pause").json["status"] == "paused"
    put = everyone.ask("PUT", f"/jobs/{job['id']}", {"job_type": "b", "run_at": "2099-01-01T00:00:00Z"})
    assert (put.status, put.json["tenant"]) == (200, "globex")
    assert everyone.job(tenant="initech")["tenant"] == "initech"


@pytest.mark.usefixtures("acme")
def test_a_retry_naming_another_tenant_is_rejected(served):
    everyone = served.as_("operator")
    job = everyone.job(tenant="globex", run_at=iso(utc()), run={"max_attempts": 1})
    [run] = until(lambda: everyone.get(f"/jobs/{job['id']}/runs").json["items"], "its run")
    path = f"/runs/{run['event_id']}"
    dead = everyone.post(f"{path}/result", {"attempt": 1, "status": "failed"}).json
    assert dead["status"] == "dead"
    refused = everyone.post(f"{path}/retry", {"tenant": "initech"})
    assert (refused.status, set(refused.errors)) == (422, {"event_id"})
    assert everyone.get(path).json == dead
    assert everyone.post(f"{path}/retry", {"tenant": "globex"}).status == 200
    assert everyone.get(path).json["status"] != "dead"


def test_too_many_requests_get_429(sidecar):
    api = start_api(sidecar, SCHEDULER_API_RATE="1")
    answers = [api.get("/jobs", limit=1) for _ in range(30)]
    assert {answer.status for answer in answers} == {200, 429}
    refused = next(answer for answer in answers if answer.status == 429)
    assert int(refused.headers["Retry-After"]) >= 1
    assert api.as_("viewer").get("/jobs").status == 200  # another token has a bucket of its own


@pytest.mark.parametrize(("method", "path"), routes())
def test_a_missing_role_is_reported_before_other_errors(served, method, path):
    if (method, path) in FREE:
        return
    wrong = path.replace("{id}", "not-an-id").replace("{event_id}", "not-an-id")
    for made in (served.as_(None), served.as_("admin" if path.startswith(ALL_TENANTS) else None, "acme")):
        assert made.ask(method.upper(), wrong, b"nonsense", nonsense=1, limit="many").status == 403
    lower = {"operator": "viewer", "admin": "operator"}.get(least(method, path))
    if lower is not None:
        assert served.as_(lower).ask(method.upper(), wrong, b"nonsense", nonsense=1).status == 403
    assert Api(served.url, None).ask(method.upper(), wrong, b"nonsense", nonsense=1).status == 401
