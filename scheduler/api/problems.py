"""What can be wrong with a request: each becomes `application/problem+json` (RFC 9457)."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from scheduler.domain.errors import Problem

MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "Bad request", 401: "No token, or a bad one", 403: "Not allowed", 404: "Not there",
    405: "Method not allowed", 408: "Too slow", 409: "Conflict", 412: "Changed meanwhile", 413: "Too large",
    415: "Unsupported media type", 422: "Not acceptable as it is", 429: "Too many requests",
    500: "An error of the scheduler's own", 503: "Unavailable for the moment",
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

    def response(self, beside: Mapping[str, Any] | None = None) -> Response:
        """Return what the client gets."""
        return problem(self.status, self.detail, self.errors, self.headers, beside)


class Unauthorized(ApiError):  # noqa: N818 - named by what the client hears
    status = 401

    def __init__(self, detail: str, *, error: str = "invalid_token") -> None:
        challenge = 'Bearer realm="scheduler"' + (f', error="{error}"' if error else "")
        super().__init__(detail, headers={"WWW-Authenticate": challenge})


class Forbidden(ApiError):  # noqa: N818 - named by what the client hears
    status = 403


class NotFound(ApiError):  # noqa: N818 - named by what the client hears
    status = 404


class RequestTimeout(ApiError):  # noqa: N818 - named by what the client hears
    status = 408


class Conflict(ApiError):  # noqa: N818 - named by what the client hears
    status = 409


class PreconditionFailed(ApiError):  # noqa: N818 - named by what the client hears
    """The thing is not as the caller believes: If-Match names another ETag."""

    status = 412


class ContentTooLarge(ApiError):  # noqa: N818 - named by what the client hears
    status = 413


class Unprocessable(ApiError):  # noqa: N818 - named by what the client hears
    status = 422

    def __init__(self, errors: Iterable[Problem]) -> None:
        errors = tuple(errors)
        super().__init__("; ".join(f"{each.field}: {each.problem}" for each in errors)[:1000], errors)


class TooManyRequests(ApiError):  # noqa: N818 - named by what the client hears
    status = 429

    def __init__(self, detail: str, seconds: int) -> None:
        super().__init__(detail, headers={"Retry-After": str(seconds)})


class ServiceUnavailable(ApiError):  # noqa: N818 - named by what the client hears
    """A server that is needed cannot be reached, or all who could ask it are busy."""

    status = 503

    def __init__(self, detail: str, seconds: int = 2) -> None:
        super().__init__(detail, headers={"Retry-After": str(seconds)})


def problem(
    status: int, detail: str, errors: Iterable[Problem] = (), headers: Mapping[str, str] | None = None,
    beside: Mapping[str, Any] | None = None,
) -> Response:
    """Return a problem as a response; `beside` are further members, as RFC 9457 allows them."""
    said = {"type": "about:blank", "title": TITLES.get(status, "Problem"), "status": status, "detail": detail}
    found = [{"field": each.field, "problem": each.problem} for each in errors]
    text = json.dumps(said | dict(beside or {}) | ({"errors": found} if found else {}), ensure_ascii=False)
    # A lone surrogate, which a path or a query can bring, has no bytes.
    return Response(text.encode("utf-8", "backslashreplace"), status, dict(headers or {}), MEDIA_TYPE)
