"""Parse and check the `tenants` of a secret or a command."""

import re
from typing import Any

from scheduler.domain.offer_tenants import ALL_TENANTS
from scheduler.domain.tenants import DEFAULT_TENANT, TENANT_PATTERN

DEFAULT_TENANTS = frozenset({DEFAULT_TENANT})


def read_tenants(value: Any) -> frozenset[str]:
    """Parse a list of tenants from an operator's file; `["*"]` is every tenant. Raises ValueError."""
    if not isinstance(value, list) or not value or not all(isinstance(tenant, str) for tenant in value):
        raise ValueError('must be a list of tenants such as ["acme"], or ["*"] for all of them')
    for tenant in value:
        if tenant != ALL_TENANTS and not re.fullmatch(TENANT_PATTERN, tenant):
            raise ValueError(f'contains {tenant!r}, which is not a tenant; ["*"] means all tenants')
    return frozenset(value)


def includes(tenants: frozenset[str], tenant: str) -> bool:
    """Return whether a tenant is in the set."""
    return tenant in tenants or ALL_TENANTS in tenants
