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

from starlette.requests import Request
from starlette.responses import Response

COOKIE = "scheduler_session"
FLASH = "scheduler_flash"
LINK_SECONDS = 3600.0
_MOST_LINKS = 100
_FLASH_SECONDS = 60
_LONGEST_FLASH = 600
_LONGEST_LABEL = 40


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


def form_token(token: str) -> str:
    """Return what every form of this session carries: no other site can read it, nor work it out."""
    return hmac.new(token.encode("utf-8", "replace"), b"scheduler console form", hashlib.sha256).hexdigest()


def form_is_ours(request: Request, token: str, given: str) -> bool:
    """Tell whether a form was made by a page of this session, and sent from this site."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    return hmac.compare_digest(form_token(token), given)


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
    if not value:
        return None
    try:
        text, bad, then, label = json.loads(base64.urlsafe_b64decode(value.encode()))
    except (ValueError, TypeError):
        return None
    local = isinstance(then, str) and then.startswith("/") and not then.startswith("//")
    return Flash(str(text)[:_LONGEST_FLASH], bool(bad), then if local else None, str(label)[:_LONGEST_LABEL])


class Links:
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

    def use(self, code: str) -> str | None:
        """Return the token of a code that was not used yet."""
        token, until = self._tokens.pop(code, ("", 0.0))
        return token if token and self._clock() < until else None
