"""What every page of the console needs: services, templates, who looks, and how errors are shown."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, RedirectResponse, Response

from scheduler.api.console import session
from scheduler.api.console.broadcaster import Broadcaster, StreamLimiter
from scheduler.api.console.subscriptions import PollRequest, PollResult, poll_database
from scheduler.api.console.templating import environment
from scheduler.api.identity import Identity, Permission, Role, check
from scheduler.api.problems import TITLES, ApiError, Forbidden, ServiceUnavailable, Unauthorized, Unprocessable
from scheduler.api.services import Services
from scheduler.domain.errors import Problem, Rejected, Unavailable
from scheduler.views.overview import StatsView

POLICY = ("default-src 'self'; img-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
          "frame-ancestors 'none'")
_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin", "Cache-Control": "no-store"}
_MOST_FIELDS = 300


class Site:
    """The console of one process."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.templates = environment()
        self.broadcaster = Broadcaster(self._take)
        self.links = session.LoginLinks()
        self.streams = StreamLimiter()
        self.dead_letters: int | None = None  # how many there are, None where that is not known
        self._counting: asyncio.Task[None] | None = None
        self._drawn: tuple[int, dict[Hashable, dict[str, str]]] = (0, {})

    async def _take(self, wants: PollRequest) -> PollResult:
        if wants.failures and (self._counting is None or self._counting.done()):
            # Beside the look: a broker that is away must not keep the database's news from anybody.
            self._counting = asyncio.create_task(self._count_letters())
        return await self.services.database.read(lambda connection: poll_database(connection, wants))

    async def stats(self, who: Identity) -> StatsView | None:
        """Return the figures of a tenant, None where they cannot be had at the moment."""
        try:
            return await self.services.reads.stats(who)
        except ApiError:
            return None

    async def _count_letters(self) -> None:
        try:
            self.dead_letters = await self.services.dead.count()
        except ApiError:
            self.dead_letters = None

    def drawn_once(self, number: int, key: Hashable, draw: Callable[[], dict[str, str]]) -> dict[str, str]:
        """Return parts that many pages show alike, drawn by the first that asks at a moment."""
        if self._drawn[0] != number:
            self._drawn = (number, {})
        drawn = self._drawn[1]
        if key not in drawn:
            drawn[key] = draw()
        return drawn[key]

    def fragment(self, name: str, context: Mapping[str, Any]) -> str:
        """Return a part of a page."""
        return self.templates.get_template("fragment.html").render(
            {"part": f"parts/{name}.html", "now": datetime.now(UTC)} | dict(context)
        )

    def page(self, request: Request, name: str, context: Mapping[str, Any], status: int = 200) -> Response:
        """Return a page; what the last action did is shown on it once."""
        flash = session.take_flash(request)
        token = session.token_of(request)
        whole = {"now": datetime.now(UTC), "flash": flash, "csrf": session.form_token(token) if token else "",
                 "who": None, "live": None, "page": "", "nav": ()} | dict(context)
        if whole["who"] is not None:
            whole = permissions_of(whole["who"]) | whole | {"nav": navigation(whole["who"])}
        response = HTMLResponse(self.templates.get_template(name).render(whole), status, _HEADERS)
        if flash is not None:
            response.delete_cookie(session.FLASH, path="/", httponly=True, samesite="strict")
        return response

    def part(self, request: Request, name: str, who: Identity, context: Mapping[str, Any]) -> Response:
        """Return a part of a page, for a page that asked for it alone."""
        token = session.token_of(request) or ""
        whole = permissions_of(who) | {"who": who, "csrf": session.form_token(token)} | dict(context)
        return HTMLResponse(self.fragment(name, whole), 200, _HEADERS)

    def problem(
        self, request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Show what went wrong: beside what was tried where a script asked, else as a page."""
        response = self._problem(request, status, detail)
        response.headers.update(headers or {})
        return response

    def _problem(self, request: Request, status: int, detail: str) -> Response:
        if request.headers.get("hx-request"):
            flash = session.Flash(detail, bad=True)
            text = self.fragment("flash", {"flash": flash, "csrf": ""})
            return HTMLResponse(text, status, _HEADERS | {"HX-Retarget": "#flash", "HX-Reswap": "innerHTML"})
        context = {"title": TITLES.get(status, "Problem"), "detail": detail, "back": None,
                   "who": getattr(request.state, "who", None)}
        return self.page(request, "problem.html", context, status)


def permissions_of(who: Identity) -> dict[str, Any]:
    """Return what templates ask before they offer something."""
    return {"may_write": may(who, Permission.WRITE), "many_tenants": who.all_tenants}


def may(who: Identity, need: Permission) -> bool:
    """Tell whether a service would let this one."""
    try:
        check(who, need)
    except Forbidden:
        return False
    return True


def dead_letter_count_for(the: Site, who: Identity) -> int | None:
    """Return how many dead letters there are, None where that is not known or not for this one to see."""
    return the.dead_letters if may(who, Permission.DEAD_LETTERS) else None


def navigation(who: Identity) -> list[tuple[str, str, str]]:
    """Return the pages that this one may see."""
    pages = [("overview", "/", "Overview", Permission.READ), ("jobs", "/jobs", "Jobs", Permission.READ),
             ("runs", "/runs", "Runs", Permission.READ), ("delayed", "/delayed", "Delayed", Permission.READ_ALL),
             ("dead", "/dead", "Dead letters", Permission.DEAD_LETTERS),
             ("processes", "/processes", "Processes", Permission.READ_ALL),
             ("audit", "/audit", "Audit", Permission.AUDIT)]
    return [(key, href, words) for key, href, words, need in pages if may(who, need)]


def site(request: Request) -> Site:
    """Return the console of the application."""
    found: Site = request.app.state.console
    return found


async def visitor(request: Request) -> Identity:
    """Return who looks at the page; raise Unauthorized where there is no good token in its cookie."""
    token = session.token_of(request)
    if token is None:
        raise Unauthorized("Log in first.")
    address = request.client.host if request.client else None
    who = await site(request).services.identify(token, address)
    if who.role is Role.NONE:
        raise Forbidden("The token has no role that is known here.")
    request.state.who = who
    request.state.sub = who.sub
    await site(request).services.limit.admit(who)
    return who


def form_fields(body: str, most: int) -> dict[str, str]:
    """Return the fields of a form; raise Unprocessable where it has too many."""
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=most))
    except ValueError:
        raise Unprocessable([Problem("form", f"has more than {most} fields")]) from None


Visitor = Annotated[Identity, Depends(visitor)]


async def sent_form(request: Request, _: Visitor) -> dict[str, str]:
    """Return the fields of a form that a page of this session has made; raise Forbidden for any other.

    Only a visitor's form is read at all: to decode one takes time, and requests without a session are not counted.
    """
    fields = form_fields((await request.body()).decode("utf-8", "replace"), _MOST_FIELDS)
    token = session.token_of(request) or ""
    if not token or not session.is_valid_form(request, token, fields.pop("form_token", "")):
        raise Forbidden("This form was not made by a page of this session: open the page again.")
    return {name: value.replace("\x00", "") for name, value in fields.items()}


The = Annotated[Site, Depends(site)]
Form = Annotated[dict[str, str], Depends(sent_form)]


class ConsoleRoute(APIRoute):
    """A route whose errors are pages for people."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with every error shown in words."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except Unauthorized as error:
                return _to_login(request, error)
            except ApiError as error:
                return site(request).problem(request, error.status, error.detail, error.headers)
            except Rejected as error:
                return site(request).problem(request, 422, Unprocessable(error.problems).detail)
            except Unavailable as error:
                return site(request).problem(request, ServiceUnavailable.status, str(error))
            except RequestValidationError:
                return site(request).problem(request, 404, "There is no such page.")

        return handled


def _to_login(request: Request, error: Unauthorized) -> Response:
    """Send to the login; a visitor from another site first once more to the same page.

    A link from another site comes without the cookie, which is for this site's own pages only: a second look, now
    from here, brings it along.
    """
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    here = here if session.is_local(here) else "/"
    if request.headers.get("hx-request"):
        return Response(status_code=401, headers={"HX-Redirect": "/login"})
    if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
        safe = quote(here, safe="/?&=%-._~:@!$'()*+,;")
        context = {"address": safe}
        return site(request).page(request, "again.html", context)
    target = f"/login?next={quote(here, safe='')}" if request.method == "GET" and here != "/" else "/login"
    response = RedirectResponse(target, 303, _HEADERS)
    if session.token_of(request) is not None:
        session.forget(response)
        session.put_flash(response, session.Flash(error.detail, bad=True))
    return response


def redirect_to(address: str, flash: session.Flash | None = None) -> Response:
    """Send to a page of ours after an action, with what it did."""
    response = RedirectResponse(address if session.is_local(address) else "/", 303, _HEADERS)
    if flash is not None:
        session.put_flash(response, flash)
    return response


def back(request: Request, usual: str) -> str:
    """Return the page of ours that a form was sent from."""
    try:
        came_from = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return usual
    address = came_from.path + (f"?{came_from.query}" if came_from.query else "")
    return address if came_from.netloc == request.headers.get("host") and session.is_local(address) else usual
