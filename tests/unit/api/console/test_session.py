"""Sessions, forms and links: the contents and the value of a browser's cookies."""

from starlette.requests import Request
from starlette.responses import Response

from scheduler.api.console import session


def request(cookie="", **headers):
    found = [(b"cookie", cookie.encode()), *((name.replace("_", "-").encode(), value.encode()) for name, value in
                                             headers.items())]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": found, "scheme": "http",
                    "server": ("h", 80), "query_string": b""})


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites():
    response = Response()
    session.remember(response, request(), "the.token")
    assert response.headers["set-cookie"] == "scheduler_session=the.token; HttpOnly; Path=/; SameSite=strict"
    response = Response()
    session.remember(response, request(x_forwarded_proto="https"), "the.token")
    assert "Secure" in response.headers["set-cookie"]


def test_a_form_is_ours_only_with_the_token_of_its_session_and_from_this_site():
    good = session.form_token("a")
    assert session.is_valid_form(request(), "a", good)
    assert session.is_valid_form(request(sec_fetch_site="same-origin"), "a", good)
    assert not session.is_valid_form(request(sec_fetch_site="cross-site"), "a", good)
    assert not session.is_valid_form(request(sec_fetch_site="same-site"), "a", good)
    assert not session.is_valid_form(request(), "b", good)
    assert not session.is_valid_form(request(), "a", "")


def test_a_message_for_the_next_page_survives_anything_and_leads_nowhere_else():
    response = Response()
    session.put_flash(response, session.Flash("214 paused <b>", then="/jobs/undo"))
    cookie = response.headers["set-cookie"].split(";")[0]
    assert session.take_flash(request(cookie)) == session.Flash("214 paused <b>", then="/jobs/undo")
    response = Response()
    session.put_flash(response, session.Flash("x", then="//evil.example"))
    found = session.take_flash(request(response.headers["set-cookie"].split(";")[0]))
    assert found is not None
    assert found.then is None
    for bad in ("scheduler_flash=nonsense", "scheduler_flash=bnVsbA==", "scheduler_flash=W10="):
        assert session.take_flash(request(bad)) is None


def test_a_link_works_once_and_not_for_ever():
    now = 0.0
    links = session.LoginLinks(clock=lambda: now)
    code = links.create("token")
    assert links.use(code) == "token"
    assert links.use(code) is None
    old = links.create("token")
    now = session.LINK_SECONDS + 1
    assert links.use(old) is None
    codes = [links.create("token") for _ in range(101)]
    assert links.use(codes[0]) is None
    assert links.use(codes[-1]) == "token"
