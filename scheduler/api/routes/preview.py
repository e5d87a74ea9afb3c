"""/preview: the next occurrences of a schedule before anyone relies on it."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.api_responses import Listed, answer, body, listed, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import Reader, Serve
from scheduler.views.occurrences import OccurrenceView, PreviewView

router = APIRouter(tags=["preview"], route_class=DirectRoute)


@router.post("/preview", response_model=Listed[OccurrenceView] | PreviewView, responses=responses(408, 413),
             openapi_extra=body("Preview"))
async def preview(serve: Serve, who: Reader, request: Request) -> Response:
    """Show when a schedule would run."""
    page = await serve.reads.preview(who, await request.body())
    if page.skipped is None:
        return listed(page)
    return answer(PreviewView.model_construct(items=list(page.items), next=page.next, skipped=page.skipped))
