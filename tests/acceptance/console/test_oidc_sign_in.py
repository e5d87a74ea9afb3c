"""Sign-in with OpenID Connect, with a real provider."""

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from console_support import KEY, _Stay
from node_support import node, package
from playwright.sync_api import expect
from support import DEADLINE, until

PROVIDER = ("oidc", {"oidc-provider": "9.13.3"})
CALLBACK = "/login/oidc/callback"
SESSION, PENDING = "scheduler_session", "scheduler_sign_in"


class Provider:
    """oidc-provider in a process; its pages are forms."""

    def __init__(self, claims_in: str) -> None:
        folder = package(*PROVIDER)
        script = shutil.copy(Path(__file__).parent / "oidc" / "provider.mjs", folder)
        self.process = subprocess.Popen([node(), script, claims_in], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.issuer = self.process.stdout.readline().strip()
        assert self.issuer, "the provider did not start"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(DEADLINE)
        self.process.stdout.close()


class Visitor:
    """An HTTP client with cookies that follows redirects one at a time."""

    def __init__(self, api: str) -> None:
        self.api = api
        self.jar = CookieJar()
        self._opener = urllib.request.build_opener(_Stay, urllib.request.HTTPCookieProcessor(self.jar))

    def open(self, url: str, form: dict[str, str] | None = None):
        """Return status, body and the address of a redirect."""
        data = None if form is None else urlencode(form).encode()
        try:
            with self._opener.open(urllib.request.Request(url, data), timeout=DEADLINE) as response:
                return response.status, response.read().decode(), None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), error.headers.get("location")

    def follow(self, url: str, form: dict[str, str] | None = None, stop: str = "\n"):
        """Follow redirects until a page, or until an address that contains `stop`."""
        status, body, location = self.open(url, form)
        while location is not None:
            url = location if location.startswith("http") else f"http://{urlsplit(url).netloc}{location}"
            if stop in url:
                return status, body, url
            status, body, location = self.open(url)
        return status, body, url

    def to_callback(self, claims: dict, *, account: str = "ada", verb: str = "sign in") -> str:
        """Sign in at the provider; return the callback's address."""
        status, _, form_at = self.follow(f"{self.api}/login/oidc?next=/jobs")
        assert status == 200
        form = {"account": account, "claims": json.dumps(claims), "verb": verb}
        _, _, callback = self.follow(form_at, form, stop=CALLBACK)
        return callback

    def cookie(self, name: str) -> str | None:
        return next((cookie.value for cookie in self.jar if cookie.name == name), None)


@pytest.fixture(scope="module")
def provider():
    started = Provider("id_token")
    yield started
    started.stop()


@pytest.fixture(scope="module")
def api(world, provider):
    """An API that accepts tokens too."""
    process = world.sidecar.start(
        "api", API_PORT="0", SCHEDULER_JWT_KEY=KEY, SCHEDULER_OIDC_ISSUER=provider.issuer,
        SCHEDULER_OIDC_CLIENT_ID="console", SCHEDULER_OIDC_CLIENT_SECRET="a secret of the client")
    yield f"http://127.0.0.1:{process.logged('serving')['api_port']}"
    assert not [line for line in process.raw if "code=" in line or "a secret of the client" in line]


def bearer(url: str, token: str) -> int:
    request = urllib.request.Request(f"{url}/api/v1/jobs", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_browser_signs_in_acts_and_logs_out(world, api, browser):
    job = world.job(job_type="of.acme", tenant="acme", every="PT1H")
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{api}/login?next=/jobs/{job}")
        page.get_by_role("link", name="Sign in with your organisation").click()
        page.get_by_label("Account").fill("ada@example.org")
        page.get_by_label("Claims").fill('{"role": ["viewer", "operator"], "tenant": "acme"}')
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{api}/jobs/{job}")
        expect(page.get_by_text("ada@example.org · operator · acme")).to_be_visible()
        page.get_by_role("button", name="Pause", exact=True).click()
        until(lambda: world.sidecar.sql("SELECT 1 FROM audit WHERE thing = %s AND who = 'ada@example.org'", job),
              "the audit entry")
        cookie = next(c["value"] for c in context.cookies(api) if c["name"] == SESSION)
        assert bearer(api, cookie) == 401
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(f"{api}/login")
        context.add_cookies([{"name": SESSION, "value": cookie, "url": api}])
        page.goto(f"{api}/jobs")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    finally:
        context.close()


@pytest.mark.parametrize(("claims", "status", "text"), [
    ({"role": "admin"}, 200, "/jobs"),
    ({"role": "admin", "tenant": "*"}, 200, "/jobs"),
    ({}, 403, "claim role"),
    ({"role": ["chef", 7]}, 403, "claim role"),
    ({"role": "viewer", "tenant": "a/b"}, 403, "claim tenant"),
    ({"role": "viewer", "tenant": ["acme"]}, 403, "claim tenant"),
])
def test_claims_decide_the_role_and_the_tenant(api, claims, status, text):
    visitor = Visitor(api)
    callback = visitor.to_callback(claims)
    answered, body, _ = visitor.open(callback)
    assert (answered, text in body) == (status, True), body
    assert (visitor.cookie(SESSION) is not None) == (status == 200)
    assert visitor.cookie(PENDING) is None


def test_a_response_counts_once_and_only_in_its_own_browser(api):
    visitor, other = Visitor(api), Visitor(api)
    callback = visitor.to_callback({"role": "viewer"})
    assert other.open(callback)[0] == 400
    other.to_callback({"role": "viewer"})
    assert other.open(callback)[0] == 400, "the code of another sign-in"
    assert visitor.open(callback.replace("state=", "state=x"))[0] == 400
    assert visitor.open(callback)[0] == 400, "a failed callback ends the sign-in"

    third = Visitor(api)
    callback = third.to_callback({"role": "viewer"})
    pending = next(cookie for cookie in third.jar if cookie.name == PENDING)
    assert third.open(callback)[0] == 200
    with_kept_cookie = Visitor(api)
    with_kept_cookie.jar.set_cookie(pending)
    assert with_kept_cookie.open(callback)[0] == 403, "the provider accepts a code once"
    assert with_kept_cookie.cookie(SESSION) is None
    assert other.cookie(SESSION) is None


def test_a_denial_is_a_page(api):
    visitor = Visitor(api)
    status, body, _ = visitor.open(visitor.to_callback({"role": "viewer"}, verb="deny"))
    assert (status, "denied" in body, visitor.cookie(SESSION)) == (403, True, None)


def test_sign_in_alone_starts_the_api_and_survives_its_provider(world):
    provider = Provider("userinfo")
    process = world.sidecar.start(
        "api", API_PORT="0", SCHEDULER_OIDC_ISSUER=provider.issuer, SCHEDULER_OIDC_CLIENT_ID="console",
        SCHEDULER_OIDC_CLIENT_SECRET="a secret of the client", SCHEDULER_OIDC_ROLE_CLAIM="groups",
        SCHEDULER_OIDC_ROLE_MAP="staff=viewer,leads=admin", SCHEDULER_OIDC_TENANT_CLAIM="tenant",
        SCHEDULER_JWT_KEY="")
    url = f"http://127.0.0.1:{process.logged('serving')['api_port']}"
    assert bearer(url, world.token("admin")) == 401
    for claims, status in [({"groups": ["leads", "staff"], "tenant": "acme"}, 200), ({"groups": "leads"}, 403),
                           ({"groups": "admin", "tenant": "acme"}, 403)]:
        visitor = Visitor(url)
        assert visitor.open(visitor.to_callback(claims))[0] == status, claims
    signed_in = Visitor(url)
    signed_in.open(signed_in.to_callback({"groups": ["leads"], "tenant": "acme"}))
    assert "ada · admin · acme" in signed_in.open(f"{url}/jobs")[1]

    provider.stop()
    fresh = world.sidecar.start("api", API_PORT="0", SCHEDULER_JWT_KEY=KEY, SCHEDULER_OIDC_ISSUER=provider.issuer,
                                SCHEDULER_OIDC_CLIENT_ID="console")
    url = f"http://127.0.0.1:{fresh.logged('serving')['api_port']}"
    assert "The sign-in provider is unavailable" in Visitor(url).open(f"{url}/login")[1]
    assert Visitor(url).open(f"{url}/login/oidc")[0] == 503
    assert bearer(url, world.token("admin")) == 200
