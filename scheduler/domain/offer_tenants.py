"""Tenants that may use a worker's offers."""

import json
from collections.abc import Iterable, Mapping, Sequence

from pydantic import TypeAdapter, ValidationError

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.messages.workers import MAX_OFFERS, OFFER_TENANTS_BYTES, OFFER_TENANTS_HEADER

ALL_TENANTS = "*"
OfferTenants = Mapping[str, Sequence[str]]  # by offer; a missing offer is for all tenants
_LISTS: TypeAdapter[list[list[str]]] = TypeAdapter(list[list[str]])


def write_offer_tenants(offers: Sequence[str], tenants: Mapping[str, Iterable[str]]) -> str | None:
    """Return the header of a worker's message: a list of tenants per offer; None if all are for everyone.

    A list that does not fit is left empty, which hides the offer from every tenant.
    """
    if not tenants:
        return None
    lists: list[list[str]] = []
    room = OFFER_TENANTS_BYTES - 2
    for number, offer in enumerate(offers):
        allowed = sorted(tenants.get(offer, (ALL_TENANTS,)))
        needed = len(json.dumps(allowed)) + 2
        if needed > room - 4 * (len(offers) - number):
            allowed, needed = [], 4
        room -= needed
        lists.append(allowed)
    return json.dumps(lists)


def read_offer_tenants(header: object, offers: Sequence[str]) -> OfferTenants | None:
    """Return the tenants from the header; None without a header. Raises Rejected."""
    if header is None:
        return None
    try:
        if not isinstance(header, str) or len(header) > OFFER_TENANTS_BYTES or len(offers) > MAX_OFFERS:
            raise ValueError
        lists = _LISTS.validate_json(header, strict=True)
        pairs = list(zip(offers, lists, strict=True))
    except (ValueError, ValidationError):
        problem = f"must be a JSON list of tenants for each offer, at most {OFFER_TENANTS_BYTES:,} bytes"
        raise Rejected([Problem(OFFER_TENANTS_HEADER, problem)]) from None
    return {offer: tenants for offer, tenants in pairs if ALL_TENANTS not in tenants}


def usable_offers(offers: Iterable[str], offer_tenants: OfferTenants | None, tenant: str) -> list[str]:
    """Return the offers that a tenant may use."""
    return [offer for offer in offers
            if offer_tenants is None or offer not in offer_tenants or tenant in offer_tenants[offer]]
