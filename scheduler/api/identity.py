"""Identify callers and check their roles and tenants. All permission checks are here."""

from dataclasses import dataclass
from enum import Enum, IntEnum

from scheduler.api.problems import Forbidden
from scheduler.domain.caller import Via


class Role(IntEnum):
    """Roles in ascending order; each includes the permissions of the previous ones."""

    NONE = 0  # a valid token without a role, or with an unknown one
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller according to its token; `tenant` is None for all tenants."""

    sub: str
    role: Role
    tenant: str | None
    token: str = ""  # its digest, the key for rate limits
    address: str | None = None  # of the client
    traceparent: str | None = None  # the request's trace
    tracestate: str | None = None
    via: Via = Via.API
    narrowed: bool = False  # to one tenant, by choice: the token is for all

    @property
    def all_tenants(self) -> bool:
        """Whether the caller may see the data of every tenant."""
        return self.tenant is None


class Permission(Enum):
    """Requirements on a caller: the lowest role, and whether the token must be for all tenants."""

    READ = (Role.VIEWER, False)
    WRITE = (Role.OPERATOR, False)
    AUDIT = (Role.ADMIN, False)
    PURGE = AUDIT
    READ_ALL = (Role.VIEWER, True)  # data that belongs to no tenant
    WRITE_ALL = (Role.OPERATOR, True)
    DEAD_LETTERS = (Role.ADMIN, True)


def check(who: Identity, permission: Permission) -> None:
    """Raise Forbidden if the caller lacks the permission."""
    role, all_tenants = permission.value
    if who.role < role:
        raise Forbidden(f"This requires the role {role.name.lower()}; the token has "
                        f"{who.role.name.lower() if who.role else 'no known role'}.")
    if all_tenants and who.narrowed:
        raise Forbidden(f"This is about all tenants, and you act for {who.tenant}: choose All tenants.")
    if all_tenants and not who.all_tenants:
        raise Forbidden("This requires a token for all tenants; this one is for a single tenant.")


def visible_tenant(who: Identity, requested: str | None) -> tuple[str | None, bool]:
    """Return the tenant to filter by (None for all), and whether the caller may see any of the requested data."""
    if who.tenant is None:
        return requested, True
    return who.tenant, requested in (None, who.tenant)
