"""Determine a message's tenant from its `tenant` field or from the user_id that the broker verified."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.tenants import DEFAULT_TENANT, TENANT_PATTERN

# A topic exchange matches a binding with several # in time exponential in the number of words.
MAX_TENANT_ROUTE_WORDS = 10
_tenant = re.compile(TENANT_PATTERN).fullmatch


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Tenancy settings: SCHEDULER_TENANT_BY, SCHEDULER_TENANT_ROUTES and the broker users of our own workers."""

    by_user: bool = False
    own_users: frozenset[str] = frozenset()
    own_routes: bool = False  # a tenant may use routes under its own name only (SCHEDULER_TENANT_ROUTES)

    @classmethod
    def of(cls, tenant_by: str, own_users: Iterable[str], tenant_routes: str = "any") -> "Tenancy":
        """Return the tenancy for these settings."""
        return cls(tenant_by == "user_id", frozenset(own_users), tenant_routes == "prefix")

    def check_route(self, incoming: Incoming) -> None:
        """Raise Rejected for a route outside its tenant's name, or with too many words; `default` may use any."""
        route, tenant = getattr(incoming.command, "route", None), incoming.tenant
        if not self.own_routes or route is None or tenant == DEFAULT_TENANT:
            return
        if route != tenant and not route.startswith(f"{tenant}."):
            problem = f"must be {tenant} or start with {tenant}. (SCHEDULER_TENANT_ROUTES)"
            raise Rejected([Problem("route", problem)])
        if route.count(".") >= MAX_TENANT_ROUTE_WORDS:
            problem = f"has more than {MAX_TENANT_ROUTE_WORDS} words (SCHEDULER_TENANT_ROUTES)"
            raise Rejected([Problem("route", problem)])

    def of_command(self, tenant: str | None, user_id: str | None) -> str:
        """Return the verified tenant of a command. Raises Rejected if there is none or `tenant` differs."""
        return _verify(tenant, user_id)

    def of_result(self, tenant: str | None, user_id: str | None) -> str | None:
        """Return the tenant of the runs that a result may change; None for any, as for our own workers."""
        if not self.by_user or user_id in self.own_users:
            return tenant
        return _verify(tenant, user_id)

    def trusts_worker(self, user_id: str | None) -> bool:
        """Return whether to accept a liveness message; with verified users, only from our own workers."""
        return not self.by_user or user_id in self.own_users


def _verify(tenant: str | None, user_id: str | None) -> str:
    if not user_id:
        raise Rejected([Problem("user_id", "is required: this sidecar reads the tenant from the AMQP property "
                                           "user_id, which the broker verifies")])
    if not _tenant(user_id):
        raise Rejected([Problem("user_id", "is not a tenant name: 1 to 100 of A-Z a-z 0-9 . _ -")])
    if tenant not in (None, user_id):
        raise Rejected([Problem("tenant", "must be omitted or equal the user_id that the broker verified")])
    return user_id
