"""Which tenants a secret or a command of a worker is for."""

import re
from typing import Any

from scheduler.domain.offer_tenants import ALL_TENANTS
from scheduler.domain.tenants import DEFAULT_TENANT, TENANT_PATTERN

DEFAULT_TENANTS = frozenset({DEFAULT_TENANT})


def read_tenants(value: Any) -> frozenset[str]:
    """Read a list of tenants from an operator's file, `["*"]` for all of them. Raises ValueError."""
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise ValueError('must be a list of tenants such as ["acme"], or ["*"] for all of them')
    for each in value:
        if each != ALL_TENANTS and not re.fullmatch(TENANT_PATTERN, each):
            raise ValueError(f'has {each!r}, which is not a tenant; ["*"] is all of them')
    return frozenset(value)


def includes(tenants: frozenset[str], tenant: str) -> bool:
    """Tell whether a tenant is among those that something is for."""
    return tenant in tenants or ALL_TENANTS in tenants
