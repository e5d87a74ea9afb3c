"""In and out: logging in with a token or a link, logging out, and the console's own files."""

from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from scheduler.api.console import assets, session
from scheduler.api.console.site import ConsoleRoute, Form, The, to
from scheduler.api.identity import Role
from scheduler.api.problems import ApiError, Forbidden, NotFound
from scheduler.api.requests import Who

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
_NO_ROLE = "The token has no role that is known here: viewer, operator or admin."


def _safe(address: str) -> str:
    """Return an address of ours, never another site's."""
    fine = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if fine and not address.startswith(("/login", "/logout")) else "/"


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
    body = (await request.body()).decode("utf-8", "replace")
    fields = dict(parse_qsl(body, keep_blank_values=True, max_num_fields=10))
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("Log in on this page itself.")
    token, target = fields.get("token", "").strip(), _safe(fields.get("next", "/"))
    try:
        who = await the.services.identify(token, request.client.host if request.client else None)
        problem = _NO_ROLE if who.role is Role.NONE else None
    except ApiError as error:
        problem = error.detail
    if problem is not None:
        return the.page(request, "login.html", {"next": target, "problem": problem}, 401)
    response = to(target)
    session.remember(response, request, token)
    return response


@router.post("/login/link")
async def make_link(request: Request, the: The, who: Who) -> Response:  # noqa: ARG001 - the token must be good
    """Give who has a token a link that logs in with it, once."""
    token = request.headers["authorization"].partition(" ")[2].strip()
    return JSONResponse({"path": f"/login/{the.links.make(token)}"}, 201)


@router.get("/login/{code}")
async def use_link(request: Request, the: The, code: str) -> Response:
    """Log in by a link; a second time it is nothing."""
    token = the.links.use(code)
    if token is None:
        raise NotFound("This link was used already, or is too old. Log in with a token.")
    await the.services.identify(token)
    response = to("/")
    session.remember(response, request, token)
    return response


@router.post("/logout")
async def logout(request: Request, form: Form) -> Response:  # noqa: ARG001 - it must be a form of this session
    """Forget the token."""
    response = to("/login")
    session.forget(response)
    return response
