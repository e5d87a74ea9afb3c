"""Requests from the OpenAPI document, and pages with odd addresses, as several tenants and roles.

For every request: no server error, and no data of another tenant in the response.
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import schemathesis
from api_support import BUSY, Api, token
from commands import EXAMPLES
from from_schema import ANYTHING, broken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import DEADLINE, iso, until, utc

from scheduler.api import console
from scheduler.api.console.session import COOKIE, FLASH, form_token
from tools.schemas import openapi

TENANTS = ("acme", "globex")
SECRETS = {tenant: f"only-for-{tenant}" for tenant in TENANTS}
WHO = [("viewer", "acme"), ("operator", "globex"), ("admin", "acme"), ("nonsense", "globex"), ("admin", None)]
HASTE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]
short = settings(max_examples=2, deadline=None, suppress_health_check=HASTE, derandomize=True)
long = settings(max_examples=(EXAMPLES or 1000) // 10, deadline=None, suppress_health_check=HASTE)
document = schemathesis.openapi.from_dict(json.loads(openapi()))
document.config.generation.modes = list(schemathesis.GenerationMode)


@pytest.fixture(scope="module")
def things(shared, served) -> dict[str, dict[str, str]]:
    """Return a job and a run of each tenant, by tenant and parameter, full of words that are the tenant's own."""
    shared.start("producer").ready()
    found = {}
    for tenant, secret in SECRETS.items():
        api = served.as_("operator", tenant)
        job = api.job(name=secret, job_type=secret, payload={"a": secret}, run={}, every="PT1H", run_at=iso(utc()))
        runs = until(lambda api=api, job=job: api.get(f"/jobs/{job['id']}/runs").json["items"], "its first run")
        found[tenant] = {"id": job["id"], "event_id": runs[0]["event_id"]}
    return found


def check(tenant: str | None, asked: object, status: int, body: bytes) -> None:
    assert status < 500, (asked, status, body)
    for other, secret in SECRETS.items():
        if tenant not in (None, other):
            assert secret.encode() not in body, (tenant, asked, body)


def ask_all(served: Api, things: dict[str, dict[str, str]], case: Any) -> None:
    """Send a case as every user, for its own ids and for existing ids."""
    for place, (role, tenant) in product([None, *TENANTS], WHO):
        if place is not None:
            given = case.path_parameters or {}
            if not given.keys() & things[place].keys():
                continue
            case.path_parameters = {name: things[place].get(name, value) for name, value in given.items()}

        def answered(role: str | None = role, tenant: str | None = tenant) -> Any:
            found = case.call(base_url=served.url, timeout=DEADLINE,
                              headers={"Authorization": f"Bearer {token(role, tenant)}"})
            return found if found.status_code != BUSY else None

        found = until(answered, "an answer")
        check(tenant, (role, case.method, case.path, place), found.status_code, found.content)


@document.parametrize()
@short
def test_no_request_returns_500_or_leaks_another_tenants_data(served, things, case):
    ask_all(served, things, case)


@pytest.mark.deep
@document.parametrize()
@long
def test_no_request_returns_500_or_leaks_another_tenants_data_deep(served, things, case):
    ask_all(served, things, case)


WORDS = st.one_of(st.text(max_size=20), st.sampled_from([
    "default", "acme", "globex", SECRETS["acme"], "\x00", "é", "%", "../..", "//evil.example", "-1", "0", "9" * 30,
    "dead", "2026-11-18T00:00", "job:", "run:x", "jobs", "runs", "processes", "[" * 900, "webhook", "{}", "pause",
]))
NAMES = st.sampled_from(["status", "job_type", "tenant", "q", "after", "limit", "sort", "since", "until", "worker",
                         "next", "priority", "routing_key", "who", "x"])
UNENDING = ("/live", "/login/link")  # a stream, and what takes a bearer's token
PAGES, FORMS = ([
    re.sub(r"\{(?!event_id)\w+\}", "{id}", route.path_format)
    for module in console._PAGES for route in module.router.routes
    if method in route.methods and route.path_format not in UNENDING
] for method in ("GET", "POST"))
TEMPLATES = Path(console.__file__).parent / "templates"
FIELDS = sorted({name for path in TEMPLATES.rglob("*.html")
                 for name in re.findall(r'name="(\w+)"', path.read_text(encoding="utf-8"))})
QUERIES = st.dictionaries(NAMES, WORDS, max_size=4)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


def fetched(url: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
    def asked() -> tuple[int, bytes] | None:
        try:
            with _OPENER.open(urllib.request.Request(url, data, headers), timeout=DEADLINE) as found:
                return found.status, found.read()
        except urllib.error.HTTPError as error:
            with error:
                return None if error.code == BUSY else (error.code, error.read())

    return until(asked, f"an answer to {url}")


def places(path: str, things: dict[str, dict[str, str]], word: str) -> Iterator[str]:
    yield path.replace("{id}", quote(word, safe="")).replace("{event_id}", quote(word, safe=""))
    if "{" in path:
        yield from (path.format(**thing) for thing in things.values())


def visit(served: Api, things: dict[str, dict[str, str]], data: st.DataObject) -> None:
    """Ask for a page, or send a form, as everybody."""
    sends = data.draw(st.booleans())
    path = data.draw(st.sampled_from(FORMS if sends else PAGES))
    query = urlencode(data.draw(QUERIES), errors="replace")
    form = data.draw(st.dictionaries(st.sampled_from(FIELDS), WORDS, max_size=6)) if sends else None
    headers = {"HX-Request": "true"} if data.draw(st.booleans()) else {}
    flash = data.draw(st.one_of(st.none(), WORDS.map(lambda word: quote(word, safe=""))))
    word = data.draw(WORDS)
    for role, tenant in (("operator", "acme"), ("admin", "globex"), ("viewer", "globex")):
        mine = token(role, tenant)
        cookie = f"{COOKIE}={mine}" + ("" if flash is None else f"; {FLASH}={flash}")
        fields = None if form is None else form | {"form_token": form_token(mine)}
        sent = None if fields is None else urlencode(fields, errors="replace").encode()
        for address in places(path, things, word):
            url = f"{served.url}{address}?{query}"
            status, body = fetched(url, sent, headers | {"Cookie": cookie})
            # A word in the request may appear in a field of the page.
            said = (address + query + str(form)).encode()
            hidden = body if all(secret.encode() not in said for secret in SECRETS.values()) else b""
            check(tenant, (role, url, form), status, hidden)


@settings(short, max_examples=50)
@given(data=st.data())
def test_no_page_returns_500_or_leaks_another_tenants_data(served, things, data):
    visit(served, things, data)


@pytest.mark.deep
@long
@given(data=st.data())
def test_no_page_returns_500_or_leaks_another_tenants_data_deep(served, things, data):
    visit(served, things, data)


@settings(short, max_examples=40)
@given(message=st.one_of(broken("ScheduleRequest"), ANYTHING), path=st.sampled_from(["/jobs", "/preview"]))
def test_no_body_returns_500(served, message, path):
    body = json.dumps(message).encode()
    answer = served.as_("operator", "acme").post(path, body)
    assert answer.status < 500, (body, answer.body)
