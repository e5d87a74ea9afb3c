"""Log in with a token or a link, log out, and serve static files."""

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from scheduler.api.console import assets, session
from scheduler.api.console.site import ConsoleRoute, Form, Site, SiteParam, Visitor, form_fields, redirect_to
from scheduler.api.identity import Identity, Role
from scheduler.api.problems import ApiError, ContentTooLarge, Forbidden, NotFound, ServiceUnavailable, Unauthorized
from scheduler.api.requests import Authenticated
from scheduler.api.sign_in import is_session

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_MAX_FIELDS = 10
_MAX_BYTES = 32_768  # there is no rate limit before the login, and parsing a form takes time
_NO_ROLE = "The token has none of the roles viewer, operator and admin."


_OTHER_SITE = "Log in on this page itself."
_USED = "This link has already been used or has expired. Log in with a token."


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """Serve a static file."""
    return assets.serve(request, name)


@router.get("/login")
async def login_page(request: Request, site: SiteParam, next: str = "/") -> Response:
    """Ask for a token."""
    return await _login_page(request, site, session.safe_target(next))


@router.post("/login")
async def login(request: Request, site: SiteParam) -> Response:
    """Check a token and store it in the session's cookie."""
    if not session.from_this_site(request):
        raise Forbidden(_OTHER_SITE)
    body = await request.body()
    if len(body) > _MAX_BYTES:
        raise ContentTooLarge("This is too long for a token.")
    fields = form_fields(body.decode("utf-8", "replace"), _MAX_FIELDS)
    token, target = fields.get("token", "").strip(), session.safe_target(fields.get("next", "/"))
    try:
        await _logged_in(request, site, token)
    except (Unauthorized, ServiceUnavailable) as error:
        return await _login_page(request, site, target, error)
    response = redirect_to(target)
    session.remember(response, request, token)
    return response


async def _login_page(request: Request, site: Site, target: str, error: ApiError | None = None) -> Response:
    sign_in = site.services.sign_in
    context = {"next": target, "problem": error and error.detail, "sign_in": sign_in is not None,
               "sign_in_problem": sign_in and await sign_in.problem(), "tokens": site.services.accepts_tokens}
    return site.page(request, "login.html", context, error.status if error else 200)


async def _logged_in(request: Request, site: Site, token: str) -> Identity:
    """Return the identity of a token, within its rate limit. Raises Unauthorized if it cannot log in."""
    who = await site.services.identify(token, request.client.host if request.client else None)
    if who.role is Role.NONE:
        raise Unauthorized(_NO_ROLE)
    await site.services.limit.admit(who)
    return who


@router.post("/login/link")
async def make_link(request: Request, site: SiteParam, who: Authenticated) -> Response:  # noqa: ARG001 - checks the token
    """Create a link that logs in once with the caller's token."""
    token = request.headers["authorization"].partition(" ")[2].strip()
    return JSONResponse({"path": f"/login/{site.links.create(token)}"}, 201)


@router.get("/session")
async def check_session(who: Visitor) -> Response:  # noqa: ARG001 - checked
    """Respond 204 while the session is valid: pages ask, so that they say when it has ended."""
    return Response(status_code=204, headers={"Cache-Control": "no-store"})


@router.get("/login/{code}")
async def open_link(request: Request, site: SiteParam, code: str) -> Response:
    """Log in with a link, or ask first.

    It logs in at once only if the browser is on this machine, as with `scheduler dev`, and has no other session.
    Otherwise any user with a token could send a link that logs its reader in as a different user.
    """
    token = site.links.find(code)
    if token is None:
        raise NotFound(_USED)
    who = await _logged_in(request, site, token)
    direct = session.on_this_machine(request) and session.from_this_site(request)
    if not direct or await _has_other_session(request, site, who):
        return site.page(request, "login_link.html", {"as_": who, "address": f"/login/{quote(code, safe='')}"})
    return _use(request, site, code)


@router.post("/login/{code}")
async def use_link(request: Request, site: SiteParam, code: str) -> Response:
    """Log in with a link after the user has confirmed it."""
    if not session.from_this_site(request):
        raise Forbidden(_OTHER_SITE)
    return _use(request, site, code)


def _use(request: Request, site: Site, code: str) -> Response:
    """Log in with a link, which is then no longer valid."""
    token = site.links.use(code)
    if token is None:
        raise NotFound(_USED)
    response = redirect_to("/")
    session.remember(response, request, token)
    return response


async def _has_other_session(request: Request, site: Site, who: Identity) -> bool:
    """Return whether the browser has a different user's session."""
    token = session.token_of(request)
    try:
        user = None if token is None else await site.services.identify_visitor(token)
    except ApiError:
        return False
    return user is not None and (user.sub, user.role, user.tenant) != (who.sub, who.role, who.tenant)


@router.post("/logout")
async def logout(request: Request, site: SiteParam, form: Form) -> Response:  # noqa: ARG001 - it must be a form of this session
    """End the session: delete its row if it has one, and its cookie."""
    cookie = session.token_of(request) or ""
    if is_session(cookie):
        await site.services.sessions.end(cookie)
    response = redirect_to("/login")
    session.forget(response)
    return response
