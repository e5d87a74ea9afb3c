"""In and out: logging in with a token or a link, logging out, and the console's own files."""

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from scheduler.api.console import assets, session
from scheduler.api.console.site import ConsoleRoute, Form, Site, The, form_fields, redirect_to
from scheduler.api.identity import Identity, Role
from scheduler.api.problems import ApiError, ContentTooLarge, Forbidden, NotFound, ServiceUnavailable, Unauthorized
from scheduler.api.requests import Anyone

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_MOST_FIELDS = 10
_MOST_BYTES = 32_768  # nobody has logged in yet: there is no rate limit, and to decode a form takes time
_NO_ROLE = "The token has no role that is known here: viewer, operator or admin."


_OTHER_SITE = "Log in on this page itself."
_USED = "This link has already been used or has expired. Log in with a token."


def _safe(address: str) -> str:
    """Return an address of ours, never another site's."""
    return address if session.is_local(address) and not address.startswith(("/login", "/logout")) else "/"


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """Serve a file of the console's own."""
    return assets.serve(request, name)


@router.get("/login")
async def login_page(request: Request, the: The, next: str = "/") -> Response:
    """Ask for a token."""
    return the.page(request, "login.html", {"next": _safe(next), "problem": None})


@router.post("/login")
async def login(request: Request, the: The) -> Response:
    """Take a token that is good, and keep it in the session's cookie."""
    if not session.from_this_site(request):
        raise Forbidden(_OTHER_SITE)
    body = await request.body()
    if len(body) > _MOST_BYTES:
        raise ContentTooLarge("This is more than any token.")
    fields = form_fields(body.decode("utf-8", "replace"), _MOST_FIELDS)
    token, target = fields.get("token", "").strip(), _safe(fields.get("next", "/"))
    try:
        await _logged_in(request, the, token)
    except (Unauthorized, ServiceUnavailable) as error:
        return the.page(request, "login.html", {"next": target, "problem": error.detail}, error.status)
    response = redirect_to(target)
    session.remember(response, request, token)
    return response


async def _logged_in(request: Request, the: Site, token: str) -> Identity:
    """Return who logs in with a token, and count it; raise Unauthorized where nobody can."""
    who = await the.services.identify(token, request.client.host if request.client else None)
    if who.role is Role.NONE:
        raise Unauthorized(_NO_ROLE)
    await the.services.limit.admit(who)
    return who


@router.post("/login/link")
async def make_link(request: Request, the: The, who: Anyone) -> Response:  # noqa: ARG001 - the token must be good
    """Give who has a token a link that logs in with it, once."""
    token = request.headers["authorization"].partition(" ")[2].strip()
    return JSONResponse({"path": f"/login/{the.links.make(token)}"}, 201)


@router.get("/login/{code}")
async def open_link(request: Request, the: The, code: str) -> Response:
    """Log in by a link, or ask first.

    At once only for a user who opens it on this machine, as `scheduler dev` prints it, and has no other session:
    anybody with a token could otherwise send a link that logs its reader in as somebody else.
    """
    token = the.links.find(code)
    if token is None:
        raise NotFound(_USED)
    who = await _logged_in(request, the, token)
    direct = session.on_this_machine(request) and session.from_this_site(request)
    if not direct or await _is_another(request, the, who):
        return the.page(request, "login_link.html", {"as_": who, "address": f"/login/{quote(code, safe='')}"})
    return _use(request, the, code)


@router.post("/login/{code}")
async def use_link(request: Request, the: The, code: str) -> Response:
    """Log in by a link once the reader has agreed to."""
    if not session.from_this_site(request):
        raise Forbidden(_OTHER_SITE)
    return _use(request, the, code)


def _use(request: Request, the: Site, code: str) -> Response:
    """Log in by a link; a second time it is nothing."""
    token = the.links.use(code)
    if token is None:
        raise NotFound(_USED)
    response = redirect_to("/")
    session.remember(response, request, token)
    return response


async def _is_another(request: Request, the: Site, who: Identity) -> bool:
    """Tell whether the browser has a session of somebody else."""
    token = session.token_of(request)
    try:
        there = None if token is None else await the.services.identify(token)
    except ApiError:
        return False
    return there is not None and (there.sub, there.role, there.tenant) != (who.sub, who.role, who.tenant)


@router.post("/logout")
async def logout(request: Request, form: Form) -> Response:  # noqa: ARG001 - it must be a form of this session
    """Forget the token."""
    response = redirect_to("/login")
    session.forget(response)
    return response
