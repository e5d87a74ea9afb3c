"""The console in a real browser, over a real sidecar with something alive in it."""

import json
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from api_support import BUSY
from node_support import package
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from support import DEADLINE, Host, Sidecar, iso, patiently, until, utc

from scheduler.api.console.session import COOKIE, form_token
from scheduler.api.tokens import issue
from scheduler.rabbit import topology
from tools.browser import ARGUMENTS, chromium

KEY = "a secret of at least thirty-two bytes"
AXE = ("axe", {"axe-core": "4.14.0"})
PHONE, DESK = 390, 1280


class World:
    """A sidecar with its API, and a host that sends requests and results."""

    def __init__(self, database_url: str, amqp_url: str) -> None:
        self.sidecar = Sidecar(database_url, amqp_url)
        self.host = Host(amqp_url)
        self.api = self.sidecar.start("api", API_PORT="0", SCHEDULER_JWT_KEY=KEY, SCHEDULER_API_RATE="1000")
        self.url = f"http://127.0.0.1:{self.api.logged('serving')['api_port']}"

    def token(self, role: str = "admin", tenant: str | None = None, seconds: float = 3600) -> str:
        return issue(KEY, role=role, sub=f"{role}@example.org", tenant=tenant, lifetime=timedelta(seconds=seconds))

    def rest(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        """Call the REST API; the body of an error response is returned too."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/api/v1{path}", data, {"Authorization": f"Bearer {token or self.token()}"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return json.loads(error.read())

    def calendar(self, name: str, fields: dict[str, Any], tenant: str = "default") -> dict[str, Any]:
        """Store a calendar over REST."""
        stored: dict[str, Any] = self.rest("PUT", f"/calendars/{name}?tenant={tenant}", fields)
        return stored

    def job(self, **fields: Any) -> str:
        """Request a job and wait until it is stored."""
        job_id = self.host.request(**fields)
        self.sidecar.stored(job_id)
        return job_id

    def event(self, job_id: str) -> dict[str, Any]:
        """Take the job's next event out of the host's queue; others that come before it are dropped.

        It arrives before its producer has stored the emission, which pages show, so this waits for that too.
        """
        event: dict[str, Any] = {}
        while event.get("job_id") != job_id:
            [event] = self.host.due()
        emitted = "SELECT 1 FROM jobs WHERE id = %s AND last_emitted_at >= %s"
        again = "SELECT 1 FROM runs WHERE event_id = %s AND emitted_at >= %s"  # a later attempt is not the job's
        until(lambda: self.sidecar.sql(emitted, job_id, event["emitted_at"])
              or self.sidecar.sql(again, event["event_id"], event["emitted_at"]), "the stored emission")
        return event

    def result(self, event: dict[str, Any], status: str, **more: Any) -> None:
        """Report the result of an attempt."""
        body = {"event_id": event["event_id"], "attempt": event["run"]["attempt"], "status": status,
                "worker": "worker-1", **more}
        self.host.publish("result", body)

    def run_status(self, event: dict[str, Any], status: str) -> None:
        """Wait until the run has this status and its end was announced."""
        until(lambda: self.sidecar.sql(
            "SELECT 1 FROM run_history WHERE event_id = %s AND status = %s", event["event_id"], status,
        ), f"run {event['event_id']} {status}")

    def bulk_pause(self, job_type: str) -> str:
        """Pause the jobs of a type in the console; return the page of this bulk action."""
        self.http("/jobs/bulk", {"action": "pause", "job_type": job_type}, token=self.token())
        listed = self.rest("GET", "/audit?action=pause&via=console")["items"]
        return next(f"/bulk/{entry['batch']}" for entry in listed if entry.get("batch"))

    def dead_run(self, error: str = "the endpoint returned 502", **fields: Any) -> tuple[str, dict[str, Any]]:
        """Create a job whose first run is dead."""
        job_id = self.job(**{"job_type": "sync.crm", "run_at": iso(utc()), "run": {"max_attempts": 1}} | fields)
        event = self.event(job_id)
        output = {"status_code": 502, "body": "<b>Bad gateway</b>", "headers": {"server": "x"}, "duration_ms": 12}
        self.result(event, "failed", error=error, output=output)
        self.run_status(event, "dead")
        return job_id, event

    def http(
        self, path: str, form: dict[str, str] | None = None, *, token: str | None = None, csrf: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, str, Any]:
        """Ask for a page without a browser; redirects are not followed."""
        sent = dict(headers or {})
        if token:
            sent["Cookie"] = f"{COOKIE}={token}"
        data = None
        if form is not None:
            data = urlencode(form | {"form_token": form_token(token or "") if csrf is None else csrf}).encode()
        request = urllib.request.Request(self.url + path, data, sent)

        def asked() -> tuple[int, str, Any] | None:
            try:
                with _OPENER.open(request, timeout=DEADLINE) as answer:
                    return answer.status, answer.read().decode(), answer.headers
            except urllib.error.HTTPError as error:
                with error:
                    return None if error.code == BUSY else (error.code, error.read().decode(), error.headers)

        return until(asked, f"an answer to {path}")

    def close(self) -> None:
        self.host.close()
        codes = self.sidecar.close()
        assert codes == [0] * len(codes), [process.raw[-3:] for process in self.sidecar.processes]


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


@contextmanager
def a_world(stack: Any, template: str, **more: Any):
    """A sidecar of one consumer and one producer with its API, for a whole module."""
    database_url, vhost = stack.create_database(template=template), stack.create_vhost()
    patiently(lambda: topology.declare(vhost, queue_type="quorum", due_queue_type="default"))
    world = World(database_url, vhost)
    try:
        world.sidecar.up(**more)
        world.api.ready()
        # Pages show recent heartbeats.
        until(lambda: len(world.sidecar.sql("SELECT 1 FROM replicas")) == 3, "the first heartbeats")
        yield world
    finally:
        world.close()
        stack.delete_vhost(vhost)
        stack.drop_database(database_url)


@contextmanager
def a_browser():
    """One Chromium for a whole module."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS, timeout=5000 * DEADLINE)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A logged-in user of the console; browser errors are collected."""

    def __init__(self, browser: Browser, world: World, token: str | None, **context: Any) -> None:
        self.world = world
        self.complaints: list[str] = []
        width = context.pop("width", DESK)
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": 900}, timezone_id="America/New_York", locale="en-GB", **context)
        self.context.set_default_timeout(DEADLINE * 1000)
        if token:
            self.context.add_cookies([{"name": COOKIE, "value": token, "url": world.url, "httpOnly": True,
                                       "sameSite": "Strict"}])
        self.page: Page = self.context.new_page()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._on_request)
        self.page.on("dialog", self._on_dialog)

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} ({message.location})")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.world.url, "data:", "about:")):
            self.complaints.append(f"asked another host: {request.url}")

    def _on_dialog(self, dialog: Any) -> None:
        self.complaints.append(f"a script was run: {dialog.message}")
        dialog.dismiss()

    def go(self, path: str) -> Page:
        def there() -> bool:
            answer = self.page.goto(self.world.url + path)
            return answer is None or answer.status != BUSY

        until(there, f"an answer to {path}", within=4 * DEADLINE)
        return self.page

    def bear(self, status: str) -> None:
        """Forget what the browser notes of a page with that status, which was meant."""
        self.complaints = [complaint for complaint in self.complaints if f"status of {status}" not in complaint]

    def close(self) -> None:
        with suppress(Exception):
            self.page.goto("about:blank")
        self.context.close()


@contextmanager
def a_visit(browser: Browser, world: World, token: str | None = None, *, calm: bool = True, **context: Any):
    """Visit the console; in the end the browser must have had nothing to complain of."""
    visit = Visit(browser, world, token, **context)
    try:
        yield visit
    finally:
        visit.close()
    visit.bear("503")  # a machine that left it no time: what a test needs to see it looks for again
    if calm:
        assert visit.complaints == [], visit.complaints


@cache
def axe() -> str:
    return (package(*AXE) / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def faults(page: Page) -> list[str]:
    """Return the serious and critical findings of axe-core on a page."""
    # By the debugger's own door: the page's policy lets no script in that is not the console's.
    page.evaluate(axe() + "; 0")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {violation['help']}: "
        + json.dumps([node["html"][:200] for node in violation["nodes"][:3]])
        for violation in found["violations"] if violation["impact"] in {"serious", "critical"}
    ]


ROOT = Path(__file__).parents[1]
