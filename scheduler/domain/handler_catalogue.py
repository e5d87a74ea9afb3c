"""The job types that a worker's handlers serve, as it announces them with its heartbeats."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from scheduler.domain.errors import Problem, Rejected

HANDLERS_HEADER = "x-handlers"  # a header: consumers of release 0.2 reject unknown fields in the body
HANDLERS_BYTES = 65_536
MAX_HANDLERS = 500
_MAX_DESCRIPTION = 2_000  # characters


class HandlerOffer(BaseModel):
    """One job type: its description, the JSON Schema of its payload, and the payload's default values."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_type: str = Field(min_length=1, max_length=200)
    description: str | None = Field(default=None, max_length=_MAX_DESCRIPTION)
    parameters: dict[str, Any] | None = None
    defaults: dict[str, Any] = Field(default_factory=dict)


_OFFERS: TypeAdapter[list[HandlerOffer]] = TypeAdapter(list[HandlerOffer])


def write_catalogue(offers: Sequence[HandlerOffer]) -> str | None:
    """Return the header; None without handlers. Parameters and descriptions that do not fit are left out."""
    if not offers:
        return None
    bare = [{"job_type": offer.job_type} for offer in offers[:MAX_HANDLERS]]
    room = HANDLERS_BYTES - len(json.dumps(bare))
    while bare and room < 0:
        bare.pop()
        room = HANDLERS_BYTES - len(json.dumps(bare))
    entries: list[dict[str, Any]] = []
    for offer, fallback in zip(offers, bare, strict=False):
        description = (offer.description or "")[:_MAX_DESCRIPTION] or None
        whole = offer.model_dump(mode="json") | {"description": description}
        needed = len(json.dumps(whole)) - len(json.dumps(fallback))
        entries.append(whole if needed <= room else fallback)
        room -= needed if needed <= room else 0
    return json.dumps(entries)


def read_catalogue(header: object) -> str | None:
    """Return the JSON to store; None without a header. Raises Rejected."""
    if header is None:
        return None
    try:
        if not isinstance(header, str) or len(header) > HANDLERS_BYTES or "\\u0000" in header:
            raise ValueError
        offers = _OFFERS.validate_json(header, strict=True)
        if len(offers) > MAX_HANDLERS:
            raise ValueError
        return json.dumps([offer.model_dump(mode="json") for offer in offers])
    except (ValueError, ValidationError, RecursionError):
        problem = f"must be a JSON list of at most {MAX_HANDLERS} handlers and {HANDLERS_BYTES:,} bytes"
        raise Rejected([Problem(HANDLERS_HEADER, problem)]) from None


def merge_offers(catalogues: Iterable[Sequence[Mapping[str, Any]]]) -> dict[str, tuple[HandlerOffer, int]]:
    """Return each job type's offer and how many workers make it; the last catalogue's description applies."""
    merged: dict[str, tuple[HandlerOffer, int]] = {}
    for catalogue in catalogues:
        for offer in map(HandlerOffer.model_validate, catalogue):
            merged[offer.job_type] = offer, merged.get(offer.job_type, (offer, 0))[1] + 1
    return merged
