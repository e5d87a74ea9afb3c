"""Who looks at a page: the token in a cookie that scripts cannot read, a token against forged forms, links.

The cookie is the token itself, judged anew at each request, so that a session never holds more than the token's
rights and never outlives it. No state is kept on the server, and any replica of the API can answer.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

COOKIE = "scheduler_session"
FLASH = "scheduler_flash"
LINK_SECONDS = 3600.0
_MOST_LINKS = 100
_FLASH_SECONDS = 60
_LONGEST_FLASH = 600
_LONGEST_LABEL = 40
_LONGEST_COOKIE = 4096


def token_of(request: Request) -> str | None:
    """Return the token in the request's cookie."""
    return request.cookies.get(COOKIE) or None


def remember(response: Response, request: Request, token: str) -> None:
    """Put the token into a cookie that lasts as long as the browser, and is sent to this site's own pages only."""
    response.set_cookie(COOKIE, token, path="/", httponly=True, samesite="strict", secure=_secure(request))


def forget(response: Response) -> None:
    """Take the cookie away."""
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


def _secure(request: Request) -> bool:
    forwarded = request.headers.get("x-forwarded-proto", "").split(",")[0].strip()
    return request.url.scheme == "https" or forwarded == "https"


def is_local(address: str) -> bool:
    """Tell whether an address is a page of this site, however a browser may read it."""
    starts_here = address.startswith("/") and not address.startswith("//")
    return starts_here and "\\" not in address and address.isprintable()


def from_this_site(request: Request) -> bool:
    """Tell whether a page of this site, or the user alone, had the browser send this."""
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "none"):
        return site == "same-origin"
    # Browsers leave that header out over plain HTTP. A request without any origin is not from another site's page.
    came_from = request.headers.get("origin") or request.headers.get("referer")
    return came_from is None or _is_ours(request, came_from)


def _is_ours(request: Request, address: str) -> bool:
    """Tell whether an address is of the host that this request was sent to."""
    try:
        netloc = urlsplit(address).netloc.lower()
    except ValueError:
        return False
    # No page can make a browser send the second: it is a proxy's, whose own name for us may be the first.
    ours = (request.headers.get("host", ""), request.headers.get("x-forwarded-host", ""))
    return bool(netloc) and netloc in {each.split(",")[0].strip().lower() for each in ours}


def on_this_machine(request: Request) -> bool:
    """Tell whether the browser reached us under a name that only this machine itself has."""
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def form_token(token: str) -> str:
    """Return what every form of this session carries: no other site can read it, nor work it out."""
    return hmac.new(token.encode("utf-8", "replace"), b"scheduler console form", hashlib.sha256).hexdigest()


def is_valid_form(request: Request, token: str, given: str) -> bool:
    """Tell whether a form was made by a page of this session, and sent from this site."""
    return from_this_site(request) and hmac.compare_digest(form_token(token).encode(), given.encode())


@dataclass(frozen=True, slots=True)
class Flash:
    """What an action did, shown once on the next page, with a button for what one may want to do then."""

    text: str
    bad: bool = False
    then: str | None = None  # where the button's form is sent
    label: str = "Undo"


def put_flash(response: Response, flash: Flash) -> None:
    """Keep a message for the next page."""
    body = json.dumps([flash.text[:_LONGEST_FLASH], flash.bad, flash.then, flash.label]).encode()
    value = base64.urlsafe_b64encode(body).decode()
    response.set_cookie(FLASH, value, path="/", httponly=True, samesite="strict", max_age=_FLASH_SECONDS)


def take_flash(request: Request) -> Flash | None:
    """Return the message of the last action; whoever shows it deletes the cookie."""
    value = request.cookies.get(FLASH)
    if not value or len(value) > _LONGEST_COOKIE:
        return None
    try:
        text, bad, then, label = json.loads(base64.urlsafe_b64decode(value.encode()))
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(text, str) or not isinstance(label, str):
        return None
    local = isinstance(then, str) and is_local(then)
    return Flash(text[:_LONGEST_FLASH], bad is True, then if local else None, label[:_LONGEST_LABEL])


class LoginLinks:
    """Links that log in once: for `scheduler dev`, whose user should not have to copy a token."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def make(self, token: str) -> str:
        """Return a code that stands for the token, once and for an hour."""
        code = secrets.token_urlsafe(24)
        self._tokens[code] = (token, self._clock() + LINK_SECONDS)
        if len(self._tokens) > _MOST_LINKS:
            self._tokens.popitem(last=False)
        return code

    def find(self, code: str) -> str | None:
        """Return the token of a code that was not used yet, and leave it unused."""
        token, until = self._tokens.get(code, ("", 0.0))
        return token if token and self._clock() < until else None

    def use(self, code: str) -> str | None:
        """Return the token of a code that was not used yet."""
        token, until = self._tokens.pop(code, ("", 0.0))
        return token if token and self._clock() < until else None
