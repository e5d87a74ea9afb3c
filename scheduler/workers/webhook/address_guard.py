"""Refuse connections to addresses that are not public, unless the operator allows them."""

import socket
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from scheduler.domain.errors import Misconfigured
from scheduler.domain.targets.allow_list import AllowList
from scheduler.domain.targets.offers import REFUSED
from scheduler.domain.targets.public_addresses import Address, non_public_reason, unwrapped
from scheduler.settings import Settings
from scheduler.workers.webhook.response_limits import bounded_socket

AddrInfo = tuple[Any, Any, Any, Any, Any]


@dataclass(slots=True)
class DialledAddresses:
    """The connections that one call has attempted, and the refused ones."""

    host: str
    tenant: str = ""
    dials: int = 0
    refusals: list[str] = field(default_factory=list)

    @property
    def refused(self) -> str | None:
        """The reason of the first refusal, if no connection was allowed."""
        return self.refusals[0] if self.refusals and self.dials == 0 else None


# aiohttp may create the socket in another task, which inherits this variable.
current: ContextVar[DialledAddresses | None] = ContextVar("dialled", default=None)


class AddressRefused(OSError):  # noqa: N818 - a decision, not an error
    """The address is not allowed."""


class AddressGuard:
    """Checks the address where the socket is created, so that no name, redirect or notation bypasses it."""

    def __init__(self, settings: Settings) -> None:
        try:
            self._allowed = AllowList.parse(settings.webhook_allow)
        except ValueError as error:
            raise Misconfigured(f"SCHEDULER_WEBHOOK_ALLOW: {error}") from None
        self._own_ports = frozenset(_own_ports(settings))

    def socket(self, info: AddrInfo) -> socket.socket:
        """Create the socket of a connection: aiohttp's `socket_factory`. Raises AddressRefused."""
        address, port = info[4][:2]
        call = current.get()
        reason = self.check("" if call is None else call.host, address, port)
        if reason is not None:
            if call is not None:
                call.refusals.append(reason)
            raise AddressRefused(reason)
        if call is not None:
            call.dials += 1
        return bounded_socket(info)

    def check(self, host: str, text: str, port: int) -> str | None:
        """Return the reason to refuse an address for a host; None if it is allowed."""
        try:
            address = ip_address(text.split("%", 1)[0])
        except ValueError:
            return f"{REFUSED}{text} is not an address"
        if self._allowed.allows_name(host) or self._allowed.allows_address(address):
            return None
        kind = non_public_reason(address)
        if kind is None and not (port in self._own_ports and _is_local_address(address)):
            return None
        name = "" if host in ("", str(address)) else f"{host} is "
        reason = "a port of the sidecar on this machine" if kind is None else f"not public ({kind})"
        return f"{REFUSED}{name}{address}, which is {reason}; the operator can allow it in SCHEDULER_WEBHOOK_ALLOW"

    def check_literal(self, host: str, port: int) -> str | None:
        """Check a host that is a literal address; names are allowed here."""
        try:
            ip_address(host)
        except ValueError:
            return None
        return self.check(host, host, port)


def _own_ports(settings: Settings) -> Iterable[int]:
    yield from (settings.metrics_port, settings.api_port)
    for url in settings.amqp_urls:
        yield urlsplit(url).port or 5672
    yield 5432


def _is_local_address(address: Address) -> bool:
    """Return whether an address belongs to this machine: only such an address can be bound."""
    real = unwrapped(address)
    family = socket.AF_INET if real.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IPv4
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(real), 0))
        except OSError:
            return False
    return True
