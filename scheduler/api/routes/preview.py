"""/preview: the next occurrences of a schedule that is not stored."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.api_responses import Listed, body, preview_response, responses
from scheduler.api.dispatch import DirectRoute
from scheduler.api.requests import Api, Reader
from scheduler.views.occurrences import OccurrenceView, PreviewView

router = APIRouter(tags=["preview"], route_class=DirectRoute)


@router.post("/preview", response_model=Listed[OccurrenceView] | PreviewView, responses=responses(408, 413),
             openapi_extra=body("Preview"))
async def preview(api: Api, who: Reader, request: Request) -> Response:
    """List the next occurrences of a schedule."""
    return preview_response(await api.reads.preview(who, await request.body()))
