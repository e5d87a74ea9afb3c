"""The console against hostile pages, links, cookies and forms, and against users that overload it."""

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from api_support import Answer, Api, start_api, token
from support import DEADLINE, until

from scheduler.api.console.session import COOKIE, FLASH, form_token

EVIL = "https://evil.example"
MAX_STREAMS = 20  # of one user


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


def ask(api: Api, path: str, form: dict[str, str] | bytes | None = None, *, session: str | None = None,
        cookies: str = "", **headers: str) -> Answer:
    """Ask for a page as a browser would; redirects are not followed."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    held = [f"{COOKIE}={session}"] if session else []
    if held or cookies:
        sent["Cookie"] = "; ".join([*held, *([cookies] if cookies else [])])
    data = form if isinstance(form, bytes | None) else urlencode(form).encode()
    try:
        with _OPENER.open(urllib.request.Request(api.url + path, data, sent), timeout=DEADLINE) as found:
            return Answer(found.status, found.headers, found.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


def logged_in(answer: Answer) -> bool:
    return any(each.startswith(f"{COOKIE}=ey") for each in answer.headers.get_all("Set-Cookie") or ())


def test_console_pages_count_against_the_rate_limit(sidecar):
    api = start_api(sidecar, SCHEDULER_API_RATE="1")
    for path, headers in (("/jobs", {}), ("/jobs", {"HX-Request": "true"}), ("/", {}), ("/runs", {})):
        mine = token("viewer", sub=f"{path} {headers}")
        answers = [ask(api, path, session=mine, **headers) for _ in range(30)]
        assert {answer.status for answer in answers} == {200, 429}
        refused = next(answer for answer in answers if answer.status == 429)
        assert int(refused.headers["Retry-After"]) >= 1
        # The bucket is the token's own, whichever way it is spelled and used.
        spent = [Api(api.url, spelling).get("/jobs", limit=1).status for spelling in (mine, f"{mine}=") * 10]
        assert spent.count(200) < 10


def stream(api: Api, mine: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=DEADLINE)
    connection.request("GET", "/live", headers={"Cookie": f"{COOKIE}={mine}"})
    return connection


def test_live_pages_are_limited_per_user(served):
    mine = token("viewer", sub="collector")
    again = token("viewer", sub="collector", jti="another token")
    with ExitStack() as opened:
        held = []
        for _ in range(MAX_STREAMS):
            one = opened.enter_context(closing(stream(served, mine)))
            assert one.getresponse().status == 200
            held.append(one)
        for each in (mine, again):
            with closing(stream(served, each)) as refused:
                found = refused.getresponse()
                assert (found.status, found.headers["Retry-After"] is not None) == (429, True)
        with closing(stream(served, token("viewer", sub="somebody else"))) as other:
            assert other.getresponse().status == 200
        held[0].close()
        until(lambda: opened.enter_context(closing(stream(served, mine))).getresponse().status == 200,
              "the place of the page that was closed")


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize("form", [b"form_token=%C3%A9", "form_token=é".encode(), b"form_token=%00%ff", b""])
def test_a_forged_form_is_forbidden_whatever_it_says(served, form):
    assert ask(served, "/logout", form, session=token()).status == 403


def test_a_login_with_many_fields_is_refused(served):
    form = urlencode([("token", token()), *((f"f{index}", "x") for index in range(20))]).encode()
    assert ask(served, "/login", form).status == 422


def test_forms_of_anonymous_visitors_are_not_parsed(served):
    assert ask(served, "/login", b"token=" + b"%" * 100_000).status == 413
    crowd = b"&".join([b"a=b"] * 1000)  # more fields than a form may have; they are not parsed
    for session in (None, "ey.not.one"):
        answer = ask(served, "/jobs/preview", crowd, session=session)
        assert (answer.status, answer.headers["Location"]) == (303, "/login")
    assert ask(served, "/jobs/preview", crowd, session=token()).status == 422


@pytest.mark.parametrize("value", [
    nested(900), nested(1400), b"[" + nested(1000) + b',true,"/",""]', b'["a",true,["/"],{}]', b'{"a":1}', b"1",
])
def test_a_forged_flash_cookie_is_harmless(served, value):
    cookie = f"{FLASH}={base64.urlsafe_b64encode(value).decode()}"
    assert ask(served, "/jobs", session=token(), cookies=cookie).status == 200


@pytest.mark.parametrize("then", [
    "/\\evil.example", "//evil.example", "/\t/evil.example", "\\\\evil.example", EVIL, "javascript:alert(1)",
])
def test_redirects_stay_on_this_site(served, then):
    mine = token()
    value = base64.urlsafe_b64encode(json.dumps(["done", False, then, "Undo"]).encode()).decode()
    page = ask(served, "/jobs", session=mine, cookies=f"{FLASH}={value}")
    assert page.status == 200
    assert b"evil.example" not in page.body
    assert b"alert(1)" not in page.body
    answer = ask(served, "/login", {"token": mine, "next": then})
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    assert b"evil.example" not in ask(served, f"/login?next={urllib.parse.quote(then)}").body


@pytest.mark.parametrize("headers", [
    {"Origin": EVIL}, {"Origin": "null"}, {"Referer": f"{EVIL}/page"}, {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none", "Origin": EVIL},
])
def test_another_site_cannot_log_a_user_in(served, headers):
    answer = ask(served, "/login", {"token": token()}, **headers)
    assert answer.status == 403
    assert not logged_in(answer)
    mine = token()
    form = {"form_token": form_token(mine)}
    assert ask(served, "/logout", form, session=mine, **headers).status == 403


def test_a_login_form_of_this_site_is_accepted(served):
    netloc = urlsplit(served.url).netloc
    for headers in ({}, {"Origin": served.url}, {"Sec-Fetch-Site": "same-origin", "Origin": served.url},
                    {"Origin": "https://console.example", "X-Forwarded-Host": "console.example"},
                    {"Referer": f"{served.url}/login"}, {"Origin": f"http://{netloc.upper()}"}):
        answer = ask(served, "/login", {"token": token()}, **headers)
        assert (answer.status, logged_in(answer)) == (303, True), headers


def link(api: Api, mine: str) -> str:
    answer = ask(api, "/login/link", b"", Authorization=f"Bearer {mine}")
    assert answer.status == 201
    return answer.json["path"]


@pytest.mark.parametrize("headers", [
    {"Sec-Fetch-Site": "cross-site"}, {"Referer": f"{EVIL}/page"}, {"Host": "console.example"},
])
def test_a_login_link_from_elsewhere_asks_for_confirmation(served, headers):
    path = link(served, token("operator", sub="mallory"))
    page = ask(served, path, **headers)
    assert page.status == 200
    assert not logged_in(page)
    assert b"mallory" in page.body
    assert ask(served, path, b"", Origin=EVIL).status == 403
    agreed = ask(served, path, b"", Origin=served.url)
    assert (agreed.status, logged_in(agreed)) == (303, True)
    assert ask(served, path).status == 404


def test_a_link_does_not_replace_another_session_without_asking(served):
    path = link(served, token("operator", sub="mallory"))
    page = ask(served, path, session=token("viewer", sub="ann"))
    assert (page.status, logged_in(page)) == (200, False)
    opened = ask(served, path, session="ey.an.old-one")  # of an earlier `scheduler dev`, say
    assert (opened.status, logged_in(opened)) == (303, True)


def test_hsts_is_sent_over_tls(served):
    for path in ("/login", "/health", "/api/v1/jobs"):
        assert ask(served, path).headers["Strict-Transport-Security"] is None
        found = ask(served, path, X_Forwarded_Proto="https").headers["Strict-Transport-Security"]
        assert found == "max-age=31536000"


def test_a_query_of_thousands_of_parameters_is_refused(served):
    query = "&".join(f"a{index}" for index in range(8000))
    for path in ("/api/v1/jobs", "/jobs", "/live"):
        answer = ask(served, f"{path}?{query}", session=token(), Authorization=f"Bearer {token()}")
        assert answer.status == 422
