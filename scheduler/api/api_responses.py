"""Views as responses, and the responses that every route may give, for the OpenAPI document."""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, Field
from starlette.responses import Response

from scheduler.api import problems
from scheduler.domain.messages import FieldProblem
from scheduler.views.base import Page, View, as_json

Item = TypeVar("Item")
_WHY = {
    401: "No token, or a bad one.", 403: "Too little role, or not for this tenant.", 404: "Not there.",
    409: "A newer command has overtaken this one, or the id is taken.", 412: "Changed since: the ETag is another.",
    413: "A body above 1 MB.", 422: "What is wrong with the content.", 429: "Too many requests for this token.",
    503: "No database, or no broker where one is needed.", 408: "The body came too slowly.",
}
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
_CHALLENGE = {"WWW-Authenticate": {"schema": {"type": "string"}}}
_HEADERS = {401: _CHALLENGE, 429: _RETRY_AFTER, 503: _RETRY_AFTER}


class ProblemView(View):
    """RFC 9457: what is wrong, and where a field is wrong, which and why."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(default_factory=list)


class Listed(View, Generic[Item]):
    """A page of a list, and the cursor of the next one."""

    lists: ClassVar[frozenset[str]] = frozenset({"items"})

    items: list[Item]
    next: str | None


def answer(
    view: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a view as JSON."""
    return Response(as_json(view), status, dict(headers or {}), "application/json")


def listed(page: Page[Any]) -> Response:
    """Return a page as JSON."""
    return answer(Listed[Any].model_construct(items=list(page.items), next=page.next))


def responses(*more: int) -> dict[int | str, dict[str, Any]]:
    """Return what a route may answer but what it is for: these, and what any may."""
    return {
        status: {
            "description": _WHY[status], "headers": _HEADERS.get(status, {}),
            "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemView"}}},
        }
        for status in sorted({401, 403, 422, 429, 503, *more})
    }


def body(schema: str, *, required: bool = True) -> dict[str, Any]:
    """Return how OpenAPI tells of a body that is read as a command is."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"requestBody": {"required": required, "content": content}}
