"""Sessions of the console: the cookie, protection against forged forms, messages after actions, and login links.

The cookie is a token, or the id of a session in Postgres. It is verified at each request, so that it never exceeds
the token's rights or outlives it, and any replica of the API can respond.
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from scheduler.domain.tenants import TENANT_PATTERN

COOKIE = "scheduler_session"
FLASH = "scheduler_flash"
TENANT = "scheduler_tenant"
LINK_SECONDS = 3600.0
_MAX_LINKS = 100
_FLASH_SECONDS = 60
_MAX_FLASH = 600
_MAX_LABEL = 40
_MAX_COOKIE = 4096


def token_of(request: Request) -> str | None:
    """Return the token in the request's cookie."""
    return request.cookies.get(COOKIE) or None


def remember(response: Response, request: Request, token: str) -> None:
    """Put the token into a cookie that lasts as long as the browser, and is sent to this site's own pages only."""
    response.set_cookie(COOKIE, token, path="/", httponly=True, samesite="strict", secure=is_secure(request))
    choose_tenant(response, request, None)


def forget(response: Response) -> None:
    """Delete the cookie, and the chosen tenant."""
    for name in (COOKIE, TENANT):
        response.delete_cookie(name, path="/", httponly=True, samesite="strict")


def chosen_tenant(request: Request) -> str | None:
    """Return the tenant that the user of all tenants acts for; None for all."""
    chosen = request.cookies.get(TENANT, "")
    return chosen if re.fullmatch(TENANT_PATTERN, chosen) else None


def choose_tenant(response: Response, request: Request, tenant: str | None) -> None:
    """Act for one tenant, or for all with None, as long as the browser is open."""
    if tenant is None:
        response.delete_cookie(TENANT, path="/", httponly=True, samesite="strict")
    else:
        response.set_cookie(TENANT, tenant, path="/", httponly=True, samesite="strict", secure=is_secure(request))


def is_secure(request: Request) -> bool:
    """Return whether the browser uses https."""
    forwarded = request.headers.get("x-forwarded-proto", "").split(",")[0].strip()
    return request.url.scheme == "https" or forwarded == "https"


def is_local(address: str) -> bool:
    """Return whether an address is a page of this site, regardless of how a browser parses it."""
    starts_here = address.startswith("/") and not address.startswith("//")
    return starts_here and "\\" not in address and address.isprintable()


def safe_target(address: str) -> str:
    """Return the page to open after a login: an address of this site, or the overview."""
    return address if is_local(address) and not address.startswith(("/login", "/logout")) else "/"


def from_this_site(request: Request) -> bool:
    """Return whether a page of this site, or the user directly, caused this request."""
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "none"):
        return site == "same-origin"
    # Browsers omit that header over plain HTTP. A request without any origin is not from another site's page.
    origin = request.headers.get("origin") or request.headers.get("referer")
    return origin is None or _is_own_host(request, origin)


def _is_own_host(request: Request, address: str) -> bool:
    """Return whether an address has the host that this request was sent to."""
    try:
        netloc = urlsplit(address).netloc.lower()
    except ValueError:
        return False
    # Only a proxy sends X-Forwarded-Host, no browser does; behind a proxy, Host may be an internal name.
    hosts = (request.headers.get("host", ""), request.headers.get("x-forwarded-host", ""))
    return bool(netloc) and netloc in {host.split(",")[0].strip().lower() for host in hosts}


def on_this_machine(request: Request) -> bool:
    """Return whether the browser runs on this machine: it used a loopback address."""
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def form_token(token: str) -> str:
    """Return the token in every form of this session: no other site can read or compute it."""
    return hmac.new(token.encode("utf-8", "replace"), b"scheduler console form", hashlib.sha256).hexdigest()


def is_valid_form(request: Request, token: str, form_value: str) -> bool:
    """Return whether a form comes from a page of this session and was sent from this site."""
    return from_this_site(request) and hmac.compare_digest(form_token(token).encode(), form_value.encode())


@dataclass(frozen=True, slots=True)
class Flash:
    """The message of an action, shown once on the next page, with an optional button for a follow-up action."""

    text: str
    bad: bool = False
    then: str | None = None  # address of the button's form
    label: str = "Undo"
    shows: str | None = None  # address of the page about the action


def put_flash(response: Response, flash: Flash) -> None:
    """Store a message for the next page."""
    body = json.dumps([flash.text[:_MAX_FLASH], flash.bad, flash.then, flash.label, flash.shows]).encode()
    value = base64.urlsafe_b64encode(body).decode()
    response.set_cookie(FLASH, value, path="/", httponly=True, samesite="strict", max_age=_FLASH_SECONDS)


def take_flash(request: Request) -> Flash | None:
    """Return the message of the last action; the caller deletes the cookie."""
    value = request.cookies.get(FLASH)
    if not value or len(value) > _MAX_COOKIE:
        return None
    try:
        text, bad, then, label, shows = json.loads(base64.urlsafe_b64decode(value.encode()))
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(text, str) or not isinstance(label, str):
        return None
    then, shows = (link if isinstance(link, str) and is_local(link) else None for link in (then, shows))
    return Flash(text[:_MAX_FLASH], bad is True, then, label[:_MAX_LABEL], shows)


class LoginLinks:
    """Login links for one use: users of `scheduler dev` need not copy a token."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def create(self, token: str) -> str:
        """Return a code for the token that is valid once, for an hour."""
        code = secrets.token_urlsafe(24)
        self._tokens[code] = (token, self._clock() + LINK_SECONDS)
        if len(self._tokens) > _MAX_LINKS:
            self._tokens.popitem(last=False)
        return code

    def find(self, code: str) -> str | None:
        """Return the token of an unused code without using it."""
        token, until = self._tokens.get(code, ("", 0.0))
        return token if token and self._clock() < until else None

    def use(self, code: str) -> str | None:
        """Use a code and return its token, None if it was used or has expired."""
        token, until = self._tokens.pop(code, ("", 0.0))
        return token if token and self._clock() < until else None
