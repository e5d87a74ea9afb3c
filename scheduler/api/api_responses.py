"""Build JSON responses from views, and describe error responses for the OpenAPI document."""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, Field
from starlette.responses import Response

from scheduler.api import problems
from scheduler.domain.messages import FieldProblem
from scheduler.views.base import Page, View, as_json
from scheduler.views.occurrences import PreviewPage, PreviewView

Item = TypeVar("Item")
_DESCRIPTIONS = {
    401: "The token is missing or invalid.", 403: "The token's role or tenant does not allow this.",
    404: "Not found.",
    409: "A newer command was applied before this one, or the id is in use.",
    412: "The job has changed: If-Match does not contain its ETag.",
    413: "The body exceeds 1 MB.", 422: "The request is invalid; `errors` names the fields.",
    429: "Too many requests for this token.",
    503: "The database, or a broker that the request needs, is unavailable.", 408: "The body arrived too slowly.",
}
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
_CHALLENGE = {"WWW-Authenticate": {"schema": {"type": "string"}}}
_HEADERS = {401: _CHALLENGE, 429: _RETRY_AFTER, 503: _RETRY_AFTER}


class ProblemView(View):
    """An error response (RFC 9457); `errors` lists the invalid fields."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(default_factory=list)


class Listed(View, Generic[Item]):
    """A page of a list, and the cursor of the next page."""

    lists: ClassVar[frozenset[str]] = frozenset({"items"})

    items: list[Item]
    next: str | None


def json_response(
    view: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a view as JSON."""
    return Response(as_json(view), status, dict(headers or {}), "application/json")


def page_response(page: Page[Any]) -> Response:
    """Return a page as JSON."""
    return json_response(Listed[Any].model_construct(items=list(page.items), next=page.next))


def preview_response(page: PreviewPage) -> Response:
    """Return occurrences as JSON, with those that are skipped if the schedule has adjustments."""
    if page.skipped is None:
        return page_response(page)
    return json_response(PreviewView.model_construct(items=list(page.items), next=page.next, skipped=page.skipped))


def responses(*more: int) -> dict[int | str, dict[str, Any]]:
    """Describe the error responses of a route: the common ones and `more`."""
    return {
        status: {
            "description": _DESCRIPTIONS[status], "headers": _HEADERS.get(status, {}),
            "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemView"}}},
        }
        for status in sorted({401, 403, 422, 429, 503, *more})
    }


def body(schema: str, *, required: bool = True) -> dict[str, Any]:
    """Describe, for OpenAPI, a body that is parsed like a command."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"requestBody": {"required": required, "content": content}}
