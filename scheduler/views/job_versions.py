"""The JSON of a job's versions."""

from typing import Any

from pydantic import SerializeAsAny

from scheduler.domain.messages import Instant
from scheduler.postgres.jobs.versions import JobVersion
from scheduler.views.base import Verbatim, View
from scheduler.views.jobs import request_text


class JobVersionView(View):
    """A request that defined the job."""

    version: int
    at: Instant
    by: str | None
    via: str
    request: SerializeAsAny[dict[str, Any]]  # or Verbatim


def version_view(stored: JobVersion) -> JobVersionView:
    """Return the view of a version, with credentials masked."""
    return JobVersionView.model_construct(
        version=stored.version, at=stored.at, by=stored.by, via=stored.via,
        request=Verbatim(request_text(stored.job)),
    )
