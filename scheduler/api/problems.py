"""Errors of a request, each rendered as `application/problem+json` (RFC 9457)."""

import json
from collections.abc import Iterable, Mapping

from starlette.responses import Response

from scheduler.domain.errors import Problem

MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 412: "Precondition Failed", 413: "Content Too Large",
    415: "Unsupported Media Type", 422: "Unprocessable Content", 429: "Too Many Requests",
    500: "Internal Server Error", 503: "Service Unavailable",
}


class ApiError(Exception):
    """Ends a request with a problem."""

    status = 500

    def __init__(
        self, detail: str, errors: Iterable[Problem] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the response for the client."""
        return problem(self.status, self.detail, self.errors, self.headers)


class BadRequest(ApiError):  # noqa: N818 - the HTTP status
    status = 400


class Unauthorized(ApiError):  # noqa: N818 - the HTTP status
    status = 401

    def __init__(self, detail: str, *, error: str = "invalid_token") -> None:
        challenge = 'Bearer realm="scheduler"' + (f', error="{error}"' if error else "")
        super().__init__(detail, headers={"WWW-Authenticate": challenge})


class Forbidden(ApiError):  # noqa: N818 - the HTTP status
    status = 403


class NotFound(ApiError):  # noqa: N818 - the HTTP status
    status = 404


class RequestTimeout(ApiError):  # noqa: N818 - the HTTP status
    status = 408


class Conflict(ApiError):  # noqa: N818 - the HTTP status
    status = 409


class PreconditionFailed(ApiError):  # noqa: N818 - the HTTP status
    """If-Match does not contain the current ETag."""

    status = 412


class ContentTooLarge(ApiError):  # noqa: N818 - the HTTP status
    status = 413


class Unprocessable(ApiError):  # noqa: N818 - the HTTP status
    status = 422

    def __init__(self, errors: Iterable[Problem]) -> None:
        errors = tuple(errors)
        super().__init__("; ".join(f"{error.field}: {error.problem}" for error in errors)[:1000], errors)


class TooManyRequests(ApiError):  # noqa: N818 - the HTTP status
    status = 429

    def __init__(self, detail: str, seconds: int) -> None:
        super().__init__(detail, headers={"Retry-After": str(seconds)})


class ServiceUnavailable(ApiError):  # noqa: N818 - the HTTP status
    """A required server is unreachable, or all connections to it are busy."""

    status = 503

    def __init__(self, detail: str, seconds: int = 2) -> None:
        super().__init__(detail, headers={"Retry-After": str(seconds)})


def problem(
    status: int, detail: str, errors: Iterable[Problem] = (), headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem as a response."""
    content = {"type": "about:blank", "title": TITLES.get(status, "Problem"), "status": status, "detail": detail}
    fields = [{"field": error.field, "problem": error.problem} for error in errors]
    text = json.dumps(content | ({"errors": fields} if fields else {}), ensure_ascii=False)
    # A path or a query may contain a lone surrogate, which UTF-8 cannot encode.
    return Response(text.encode("utf-8", "backslashreplace"), status, dict(headers or {}), MEDIA_TYPE)
