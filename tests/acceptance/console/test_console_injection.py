"""Message contents are shown as text: a corpus of injections through every field that a page shows."""

import json
import re

from console_support import a_visit
from playwright.sync_api import expect
from support import DEADLINE, iso, until, utc

expect.set_options(timeout=DEADLINE * 1000)

# Scripts, SVG, attributes, templates, styles, addresses, ends of strings and of elements, and odd characters.
CORPUS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    '" autofocus onfocus="alert(1)',
    "javascript:alert(1)",
    "{{7919*7907}}{{config}}",
    "${7919*7907}",
    "{% include 'login.html' %}",
    "<style>*{display:none}</style>",
    "</title><h1>x</h1>",
    "</textarea><script>alert(1)</script>",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<a href=//evil.example>x</a>",
    "&lt;script&gt;",
    "<!-- ",
    "]]>",
    "\u202egnp.exe",
    "a\u2028b",
    "<iframe srcdoc='<script>parent.alert(1)</script>'>",
    "<form action=//evil.example><button>x</button></form>",
    'hx-get="/jobs" hx-trigger=load',
    "<div hx-get=/logout hx-trigger=load>",
    "<details open ontoggle=alert(1)>",
    "<math><mtext></p><img src=x onerror=alert(1)>",
    "+ADw-script+AD4-",
    "%3Cscript%3E",
]
ALL = " ".join(CORPUS)


def short(texts, most=200):
    """Return as much of the corpus as fits into a field, in pieces."""
    piece, pieces = "", []
    for text in texts:
        if len(piece) + len(text) + 1 > most:
            pieces.append(piece)
            piece = ""
        piece = f"{piece} {text}".strip()
    return [*pieces, piece]


def test_every_field_that_is_shown_is_shown_as_text(world, browser):
    jobs, events = [], []
    for piece in short(CORPUS):
        fields = {"job_type": piece, "name": piece, "payload": {piece: [piece, {"deep": ALL}]}}
        job = world.job(**fields, run_at=iso(utc()), run={"max_attempts": 1})
        event = world.event(job)
        outputs = [{"stdout": ALL, "stderr": ALL}, {"status_code": ALL, "body": ALL, "headers": {ALL: ALL}},
                   ALL, [ALL], {"stdout": {"x": ALL}, "duration_ms": ALL, "exit_code": [ALL]}]
        world.result(event, "failed", error=ALL, output=outputs[len(jobs) % len(outputs)], worker=piece)
        world.run_status(event, "dead")
        jobs.append(job)
        events.append(event["event_id"])
    no_placeholders = ALL.replace("{{", "{ {")  # a target with an unknown placeholder is rejected as a whole
    waiting = world.job(
        job_type=short(CORPUS)[0],
        name=short(CORPUS)[1],
        every="P1D",
        target={
            "webhook": {
                "url": "http://example.org/?q='onmouseover='alert(1)",
                "headers": {"X-A": "<img src=x onerror=alert(1)>"},
                "body": no_placeholders,
            }
        },
    )
    commanded = world.job(job_type="x", name=short(CORPUS)[2], every="P1D",
                          target={"command": {"name": "a", "arguments": [no_placeholders]}})
    for body in (ALL.encode(), json.dumps({"id": ALL, "job_type": ALL, ALL: ALL}).encode()):
        world.host.publish("request", body, headers={"x-note": ALL})
    until(
        lambda: (
            world.host.channel.queue_declare("scheduler_dead", passive=True).method.message_count >= 2 + len(jobs)
        ),
        "the dead letters",
    )
    closed = {f"2027-01-{day:02}": text[:200] for day, text in enumerate(CORPUS, 1)}
    world.calendar("injected", {"weekend": ["SU"], "closed": closed})
    with a_visit(browser, world, world.token("admin")) as visit:
        paths = [
            "/",
            "/jobs",
            "/runs",
            "/dead",
            "/audit",
            "/processes",
            "/calendars",
            "/calendars/injected?year=2027",
            "/calendars/injected/edit",
            "/jobs?late=1",
            "/find?q=%3Cscript%3Ealert(1)%3C/script%3E",
            f"/jobs/{waiting}/edit",
            f"/jobs/{waiting}",
            f"/jobs/{commanded}",
            f"/jobs/{commanded}/edit",
            *(f"/jobs/{job}" for job in jobs),
            *(f"/runs/{event}" for event in events),
            *(f"/jobs/{job}/edit" for job in jobs[:2]),
        ]
        for path in paths:
            page = visit.go(path)
            expect(page.locator("footer")).to_be_visible()
            check(page, path)
        texts = "".join(visit.go(f"/runs/{event}").locator("main").inner_text() for event in events)
        for corpu in CORPUS:
            assert " ".join(corpu.split()) in " ".join(texts.split()), corpu
        for path in ("/jobs", "/runs"):  # filter inputs are shown again too
            for name in ("q", "job_type", "tenant", "status", "since", "job_id"):
                page = visit.page
                page.goto(f"{world.url}{path}?{name}={json.dumps(ALL)[1:181]}".replace("#", ""))
                check(page, f"{path}?{name}")
                visit.bear("422")  # of an unknown status


def check(page, path):
    """The corpus has not become an element, an attribute or a script; no expression was evaluated."""
    assert (
        page.evaluate(
            "document.querySelectorAll('main script, main img, main iframe, main style, main base, main math, "
            "main meta, main animate, [onload], [onerror], [onfocus], [onmouseover], [ontoggle]').length"
        )
        == 0
    ), path
    assert page.evaluate(
        "[...document.querySelectorAll('a[href], form[action]')].every(e => new URL(e.href || e.action, "
        "location).host === location.host)"
    ), path
    assert page.evaluate("[...document.querySelectorAll('[hx-get], [hx-post]')].every(e => /^.(jobs|runs)/.test("
                         "e.getAttribute('hx-get') || e.getAttribute('hx-post')))"), path
    assert "62615533" not in page.content(), path


def test_an_invalid_form_shows_its_input_as_text(world):
    token = world.token("operator")
    names = ("job_type", "name", "rule", "timezone", "payload", "url", "headers", "body", "command", "arguments",
             "run_at", "starts", "route", "tenant", "max_lateness", "at", "every_count")
    form = dict.fromkeys(names, ALL)
    for when, then in (("rule", "webhook"), ("days", "command"), ("once", "message"), ("every", "message")):
        code, text, _ = world.http("/jobs/new", form | {"when": when, "then": then}, token=token)
        assert code == 422
        assert not re.search(r"<script>alert|<img src=x|<svg on|<iframe|<style>\*|<base ", text)
        code, text, _ = world.http("/jobs/preview", form | {"when": when, "then": then}, token=token)
        assert code == 200
        assert not re.search(r"<script>alert|<img src=x|<svg on|<iframe|<style>\*|<base ", text)
