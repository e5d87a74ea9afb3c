"""Sign-in with OpenID Connect: to the provider, and back."""

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from scheduler.api.console import session
from scheduler.api.console.site import ConsoleRoute, Site, SiteParam
from scheduler.api.oidc import PENDING_SECONDS
from scheduler.api.problems import BadRequest, Forbidden, NotFound
from scheduler.api.sign_in import OidcSignIn

router = APIRouter(include_in_schema=False, route_class=ConsoleRoute)
CALLBACK = "/login/oidc/callback"
COOKIE = "scheduler_sign_in"
_NO_STORE = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
_MAX_PARAMETER = 200  # characters shown on an error page


@router.get("/login/oidc")
async def start(request: Request, site: SiteParam, next: str = "/") -> Response:
    """Redirect to the provider."""
    sign_in = _sign_in(site)
    started = await sign_in.start(session.safe_target(next), _redirect_uri(request, sign_in))
    response = RedirectResponse(started.url, 303, _NO_STORE)
    # Lax, because the provider's redirect back comes from another site.
    response.set_cookie(COOKIE, started.cookie, path=CALLBACK, httponly=True, samesite="lax",
                        secure=session.is_secure(request), max_age=PENDING_SECONDS)
    return response


@router.get(CALLBACK)
async def callback(request: Request, site: SiteParam) -> Response:
    """Complete the sign-in that the provider's redirect belongs to."""
    try:
        response = await _complete(request, site, _sign_in(site))
    except (BadRequest, Forbidden) as error:
        response = site.problem(request, error.status, error.detail)
    response.delete_cookie(COOKIE, path=CALLBACK, httponly=True, samesite="lax")
    return response


async def _complete(request: Request, site: Site, sign_in: OidcSignIn) -> Response:
    query = request.query_params
    pending = sign_in.pending(request.cookies.get(COOKIE), query.get("state", ""))
    sign_in.check_issuer(query.get("iss"))
    if "error" in query:
        reason = query["error"][:_MAX_PARAMETER]
        if reason == "access_denied":
            raise Forbidden("The sign-in was denied at the provider.")
        raise Forbidden(f"The provider refused the sign-in: {reason}.")
    cookie = await sign_in.finish(pending, query.get("code", ""), _redirect_uri(request, sign_in))
    # A page, not a redirect: after a redirect from another site browsers withhold the session's strict cookie.
    response = site.page(request, "again.html", {"address": pending.then})
    session.remember(response, request, cookie)
    return response


def _sign_in(site: Site) -> OidcSignIn:
    if site.services.sign_in is None:
        raise NotFound("Sign-in with OpenID Connect is not configured.")
    return site.services.sign_in


def _redirect_uri(request: Request, sign_in: OidcSignIn) -> str:
    """Return the callback's address, as the browser knows this site."""
    if sign_in.redirect_url is not None:
        return sign_in.redirect_url
    forwarded = request.headers.get("x-forwarded-host", "").split(",")[0].strip()
    host = forwarded or request.headers.get("host", "")
    return f"{'https' if session.is_secure(request) else 'http'}://{host}{CALLBACK}"
