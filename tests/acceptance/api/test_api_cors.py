"""Pages of other origins use the API from a browser, if SCHEDULER_CORS_ORIGINS names them."""

import os
import subprocess
import sys
import urllib.request
from uuid import uuid4

import pytest
from api_support import start_api
from support import DEADLINE

ORIGIN, FOREIGN = "https://app.example.com", "https://evil.example.com"
NAMES = ("Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Access-Control-Allow-Credentials")


@pytest.fixture(scope="module")
def api(shared):
    return start_api(shared, SCHEDULER_CORS_ORIGINS=f"{ORIGIN}:443, http://localhost:3000")


def ask(api, method, path, origin=ORIGIN, body=None, **headers):
    given = {name.replace("_", "-"): value for name, value in headers.items()} | {"Origin": origin}
    return api.ask(method, path, body, headers=given)


def test_every_response_of_the_api_has_the_headers_errors_included(api):
    job = api.job()["id"]
    strange = type(api)(api.url, "not a token")
    for expected, answer in (
        (200, ask(api, "GET", f"/jobs/{job}")), (200, ask(api, "GET", "/health")),
        (200, ask(api, "GET", "/api/openapi.json")), (404, ask(api, "GET", f"/jobs/{uuid4()}")),
        (404, ask(api, "GET", "/nowhere")), (405, ask(api, "PATCH", "/jobs")),
        (401, ask(strange, "GET", "/jobs")), (422, ask(api, "GET", "/jobs?colour=red")),
        (422, ask(api, "GET", "/jobs?" + "a=1&" * 300)), (413, ask(api, "POST", "/jobs", body=b" " * 1_100_000)),
        (403, ask(api.as_("viewer"), "POST", "/jobs", body={})),
    ):
        assert answer.status == expected, answer.body
        origin, exposed, credentials = (answer.headers[name] for name in NAMES)
        assert (origin, credentials) == (ORIGIN, None), (expected, answer.headers.items())
        assert {part.strip() for part in exposed.split(",")} == {"ETag", "Location", "Retry-After"}
        assert "Origin" in answer.headers["Vary"]


@pytest.mark.parametrize("origin", [ORIGIN, "http://localhost:3000"])
def test_a_preflight_needs_no_token(api, origin):
    nobody = type(api)(api.url, None)
    answer = ask(nobody, "OPTIONS", f"/jobs/{uuid4()}", origin, Access_Control_Request_Method="PUT",
                 Access_Control_Request_Headers="authorization, content-type, if-match")
    assert (answer.status, answer.headers[NAMES[0]], answer.headers[NAMES[2]]) == (200, origin, None)
    assert "PUT" in answer.headers["Access-Control-Allow-Methods"]
    assert "authorization" in answer.headers["Access-Control-Allow-Headers"].lower()


def test_other_origins_and_the_console_get_no_permission(api):
    preflight = ask(api, "OPTIONS", "/jobs", FOREIGN, Access_Control_Request_Method="POST")
    page = urllib.request.Request(f"{api.url}/login", headers={"Origin": ORIGIN})
    with urllib.request.urlopen(page, timeout=DEADLINE) as login:
        found = [answer.headers for answer in (
            preflight, ask(api, "GET", "/jobs", FOREIGN), ask(api, "GET", "/jobs", "null"), login)]
    assert [headers[NAMES[0]] for headers in found] == [None] * 4
    assert preflight.status == 400


def test_without_the_setting_nothing_is_allowed(served):
    answer = ask(served, "GET", "/jobs")
    assert (answer.status, answer.headers[NAMES[0]], answer.headers["Vary"]) == (200, None, None)


@pytest.mark.parametrize("value", ["*", f"{ORIGIN},*", f"{ORIGIN}/app", "app.example.com", "null"])
def test_an_origin_that_no_browser_sends_is_an_error_at_the_start(shared, value):
    env = os.environ | shared.env | {"SCHEDULER_JWT_KEY": "x" * 40, "SCHEDULER_CORS_ORIGINS": value}
    done = subprocess.run([sys.executable, "-m", "scheduler", "api"], env=env, capture_output=True, text=True,
                          timeout=DEADLINE, check=False)
    assert (done.returncode, "SCHEDULER_CORS_ORIGINS" in done.stderr) == (78, True)
