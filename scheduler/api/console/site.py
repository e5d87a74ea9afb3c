"""Shared parts of all console pages: services, templates, the visitor, and error pages."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, RedirectResponse, Response

from scheduler.api.coalesced_reads import CoalescedReads
from scheduler.api.console import session
from scheduler.api.console.broadcaster import Broadcaster, StreamLimiter
from scheduler.api.console.load_ahead import Load
from scheduler.api.console.subscriptions import PollRequest, PollResult, poll_database
from scheduler.api.console.templating import environment
from scheduler.api.identity import Identity, Permission, Role, check
from scheduler.api.problems import TITLES, ApiError, Forbidden, ServiceUnavailable, Unauthorized, Unprocessable
from scheduler.api.services import Services
from scheduler.domain.caller import Via
from scheduler.domain.errors import Problem, Rejected, Unavailable
from scheduler.views.overview import StatsView

POLICY = ("default-src 'self'; img-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
          "frame-ancestors 'none'")
_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin", "Cache-Control": "no-store"}
_MAX_FIELDS = 300


class Site:
    """The console of one process."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.templates = environment()
        self.templates.globals["read_replica"] = services.database.replica
        self.broadcaster = Broadcaster(self._poll)
        self.links = session.LoginLinks()
        self.streams = StreamLimiter()
        self.loads: CoalescedReads[Hashable, Load] = CoalescedReads(most_seconds=60.0, most_cached=20)
        self.dead_letters: int | None = None  # their number, None if unknown
        self._counting: asyncio.Task[None] | None = None
        self._rendered: tuple[int, dict[Hashable, dict[str, str]]] = (0, {})

    async def _poll(self, wants: PollRequest) -> PollResult:
        if wants.failures and (self._counting is None or self._counting.done()):
            # In the background: an unavailable broker must not delay the database's results.
            self._counting = asyncio.create_task(self._count_letters())
        return await self.services.database.read(lambda connection: poll_database(connection, wants))

    async def stats(self, who: Identity) -> StatsView | None:
        """Return the statistics of a tenant, None if they are currently unavailable."""
        try:
            return await self.services.reads.stats(who)
        except ApiError:
            return None

    async def _count_letters(self) -> None:
        try:
            self.dead_letters = await self.services.dead.count()
        except ApiError:
            self.dead_letters = None

    def render_once(self, number: int, key: Hashable, render: Callable[[], dict[str, str]]) -> dict[str, str]:
        """Return parts that many pages share, rendered once per snapshot."""
        if self._rendered[0] != number:
            self._rendered = (number, {})
        rendered = self._rendered[1]
        if key not in rendered:
            rendered[key] = render()
        return rendered[key]

    def fragment(self, name: str, context: Mapping[str, Any]) -> str:
        """Return a part of a page."""
        return self.templates.get_template("fragment.html").render(
            {"part": f"parts/{name}.html", "now": datetime.now(UTC)} | dict(context)
        )

    def page(self, request: Request, name: str, context: Mapping[str, Any], status: int = 200) -> Response:
        """Render a page with the message of the last action."""
        flash = session.take_flash(request)
        token = session.token_of(request)
        values = {"now": datetime.now(UTC), "flash": flash, "csrf": session.form_token(token) if token else "",
                 "who": None, "live": None, "page": "", "nav": ()} | dict(context)
        if values["who"] is not None:
            values = permissions_of(values["who"]) | values | {"nav": navigation(values["who"])}
        response = HTMLResponse(self.templates.get_template(name).render(values), status, _HEADERS)
        if flash is not None:
            response.delete_cookie(session.FLASH, path="/", httponly=True, samesite="strict")
        return response

    def part(self, request: Request, name: str, who: Identity, context: Mapping[str, Any]) -> Response:
        """Render a part of a page for a script."""
        token = session.token_of(request) or ""
        values = permissions_of(who) | {"who": who, "csrf": session.form_token(token)} | dict(context)
        return HTMLResponse(self.fragment(name, values), 200, _HEADERS)

    def problem(
        self, request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Show an error: as a message for a script, otherwise as a page."""
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
    """Return the permissions that templates check."""
    return {"may_write": may(who, Permission.WRITE), "may_purge": may(who, Permission.PURGE),
            "many_tenants": who.all_tenants}


def may(who: Identity, permission: Permission) -> bool:
    """Return whether the services would allow it."""
    try:
        check(who, permission)
    except Forbidden:
        return False
    return True


def dead_letter_count_for(site: Site, who: Identity) -> int | None:
    """Return the number of dead letters, None if it is unknown or the visitor may not see it."""
    return site.dead_letters if may(who, Permission.DEAD_LETTERS) else None


def navigation(who: Identity) -> list[tuple[str, str, str]]:
    """Return the pages that the visitor may open."""
    pages = [("overview", "/", "Overview", Permission.READ), ("jobs", "/jobs", "Jobs", Permission.READ),
             ("runs", "/runs", "Runs", Permission.READ), ("load", "/load", "Load", Permission.READ),
             ("calendars", "/calendars", "Calendars", Permission.READ),
             ("delayed", "/delayed", "Delayed", Permission.READ_ALL),
             ("dead", "/dead", "Dead letters", Permission.DEAD_LETTERS),
             ("tenants", "/tenants", "Tenants", Permission.READ_ALL),
             ("processes", "/processes", "Processes", Permission.READ_ALL),
             ("audit", "/audit", "Audit", Permission.AUDIT)]
    return [(key, href, label) for key, href, label, permission in pages if may(who, permission)]


def get_site(request: Request) -> Site:
    """Return the console of the application."""
    site: Site = request.app.state.console
    return site


async def visitor(request: Request) -> Identity:
    """Return the visitor. Raises Unauthorized without a valid session cookie."""
    token = session.token_of(request)
    if token is None:
        raise Unauthorized("Log in first.")
    address = request.client.host if request.client else None
    who = replace(await get_site(request).services.identify_visitor(token, address), via=Via.CONSOLE)
    if who.role is Role.NONE:
        raise Forbidden("The token has no known role.")
    chosen = session.chosen_tenant(request) if who.all_tenants else None
    who = who if chosen is None else replace(who, tenant=chosen, narrowed=True)
    request.state.who = who
    request.state.sub = who.sub
    await get_site(request).services.limit.admit(who)
    return who


def form_fields(body: str, limit: int) -> dict[str, str]:
    """Parse the fields of a form. Raises Unprocessable if there are too many."""
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=limit))
    except ValueError:
        raise Unprocessable([Problem("form", f"has more than {limit} fields")]) from None


Visitor = Annotated[Identity, Depends(visitor)]


async def sent_form(request: Request, _: Visitor) -> dict[str, str]:
    """Return the fields of a form from a page of this session. Raises Forbidden for other forms.

    Only visitors' forms are parsed: parsing takes time, and requests without a session have no rate limit.
    """
    fields = form_fields((await request.body()).decode("utf-8", "replace"), _MAX_FIELDS)
    token = session.token_of(request) or ""
    if not token or not session.is_valid_form(request, token, fields.pop("form_token", "")):
        raise Forbidden("This form does not belong to this session: open the page again.")
    return {name: value.replace("\x00", "") for name, value in fields.items()}


SiteParam = Annotated[Site, Depends(get_site)]
Form = Annotated[dict[str, str], Depends(sent_form)]


class ConsoleRoute(APIRoute):
    """A route whose errors are HTML pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with errors as pages."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except Unauthorized as error:
                return _to_login(request, error)
            except ApiError as error:
                return get_site(request).problem(request, error.status, error.detail, error.headers)
            except Rejected as error:
                return get_site(request).problem(request, 422, Unprocessable(error.problems).detail)
            except Unavailable as error:
                return get_site(request).problem(request, ServiceUnavailable.status, str(error))
            except RequestValidationError:
                return get_site(request).problem(request, 404, "There is no such page.")

        return handled


def _to_login(request: Request, error: Unauthorized) -> Response:
    """Redirect to the login; if the visitor followed a link on another site, reload the page first.

    A request from another site's link has no cookie, which is SameSite=Strict. A reload from this site sends it.
    """
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    here = here if session.is_local(here) else "/"
    if request.headers.get("hx-request"):
        return Response(status_code=401, headers={"HX-Redirect": _login_address(_page_of(request))})
    if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
        safe = quote(here, safe="/?&=%-._~:@!$'()*+,;")
        context = {"address": safe}
        return get_site(request).page(request, "again.html", context)
    # After the login the form is opened again, and the script restores its content.
    page = here if request.method == "GET" else back(request, "/")
    response = RedirectResponse(_login_address(page), 303, _HEADERS)
    if session.token_of(request) is not None:
        session.forget(response)
        session.put_flash(response, session.Flash(error.detail, bad=True))
    return response


def _login_address(page: str) -> str:
    """Return the address of the login that opens a page afterwards."""
    return "/login" if page == "/" or not session.is_local(page) else f"/login?next={quote(page, safe='')}"


def _page_of(request: Request) -> str:
    """Return the page from which a script sent a request."""
    try:
        current = urlsplit(request.headers.get("hx-current-url", ""))
    except ValueError:
        return "/"
    return (current.path or "/") + (f"?{current.query}" if current.query else "")


def redirect_to(address: str, flash: session.Flash | None = None) -> Response:
    """Redirect to a page of this site after an action, with its message."""
    response = RedirectResponse(address if session.is_local(address) else "/", 303, _HEADERS)
    if flash is not None:
        session.put_flash(response, flash)
    return response


def back(request: Request, default: str) -> str:
    """Return the page of this site that a form was sent from."""
    try:
        referer = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return default
    address = referer.path + (f"?{referer.query}" if referer.query else "")
    return address if referer.netloc == request.headers.get("host") and session.is_local(address) else default
