"""Who asks, and what that one may do: the one place where roles and tenants are judged."""

from dataclasses import dataclass
from enum import Enum, IntEnum

from scheduler.api.problems import Forbidden


class Role(IntEnum):
    """Each may all that those before it may."""

    NONE = 0  # a good token with a role that is not known, or without one
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """What a token says of its bearer; `tenant` None stands for all."""

    sub: str
    role: Role
    tenant: str | None
    token: str = ""  # a digest of it, by which its requests are counted
    address: str | None = None  # where the request came from
    traceparent: str | None = None  # the trace that it belongs to
    tracestate: str | None = None

    @property
    def all_tenants(self) -> bool:
        """Whether it sees the things of every tenant."""
        return self.tenant is None


class Permission(Enum):
    """What a service asks of its caller: the least role, and whether it must be for all tenants."""

    READ = (Role.VIEWER, False)
    WRITE = (Role.OPERATOR, False)
    AUDIT = (Role.ADMIN, False)
    READ_ALL = (Role.VIEWER, True)  # what belongs to no tenant
    WRITE_ALL = (Role.OPERATOR, True)
    DEAD_LETTERS = (Role.ADMIN, True)


def check(who: Identity, need: Permission) -> None:
    """Raise Forbidden where the caller may not."""
    role, all_tenants = need.value
    if who.role < role:
        raise Forbidden(f"This takes the role {role.name.lower()}; the token has "
                        f"{who.role.name.lower() if who.role else 'none that is known'}.")
    if all_tenants and not who.all_tenants:
        raise Forbidden("This takes a token for all tenants; this one is for one of them.")


def visible_tenant(who: Identity, asked: str | None) -> tuple[str | None, bool]:
    """Return the tenant that a list is narrowed to, None for all, and whether anything can be in it."""
    if who.tenant is None:
        return asked, True
    return who.tenant, asked in (None, who.tenant)
