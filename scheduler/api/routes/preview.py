"""/preview: the next occurrences of a schedule before anyone relies on it."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from scheduler.api.answers import Listed, body, listed, responses
from scheduler.api.requests import Reader, Serve
from scheduler.views.occurrences import OccurrenceView

router = APIRouter(tags=["preview"])


@router.post("/preview", response_model=Listed[OccurrenceView], responses=responses(408, 413),
             openapi_extra=body("Preview"))
async def preview(serve: Serve, who: Reader, request: Request) -> Response:
    """Show when a schedule would run."""
    return listed(await serve.reads.preview(who, await request.body()))
