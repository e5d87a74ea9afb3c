"""The JSON of job types."""

from typing import Any

from scheduler.domain.handler_catalogue import HandlerOffer, merge_offers
from scheduler.views.base import View


class JobTypeView(View):
    """A job type that workers serve or jobs use."""

    job_type: str
    description: str | None
    parameters: dict[str, Any] | None
    defaults: dict[str, Any]
    workers: int
    jobs: int


def job_type_views(jobs: dict[str, int], catalogues: list[list[dict[str, Any]]]) -> list[JobTypeView]:
    """Return the types that are offered or in use, by name."""
    offers = merge_offers(catalogues)
    views = []
    for job_type in sorted(jobs.keys() | offers.keys()):
        offer, workers = offers.get(job_type) or (HandlerOffer.model_construct(job_type=job_type), 0)
        views.append(JobTypeView(
            job_type=job_type, description=offer.description, parameters=offer.parameters,
            defaults=offer.defaults, workers=workers, jobs=jobs.get(job_type, 0),
        ))
    return views
