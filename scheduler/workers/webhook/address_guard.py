"""Judges the very address of every dial: what is not public is refused, unless the operator allows it."""

import socket
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from scheduler.domain.errors import Misconfigured
from scheduler.domain.targets.allow_list import AllowList
from scheduler.domain.targets.public_addresses import Address, non_public_reason, unwrapped
from scheduler.settings import Settings
from scheduler.workers.webhook.response_limits import bounded_socket

AddrInfo = tuple[Any, Any, Any, Any, Any]


@dataclass(slots=True)
class DialledAddresses:
    """What one call has dialled so far, and what was refused of it."""

    host: str
    tenant: str = ""
    dials: int = 0
    refusals: list[str] = field(default_factory=list)

    @property
    def refused(self) -> str | None:
        """Why nothing was dialled at all, if that is how it was."""
        return self.refusals[0] if self.refusals and self.dials == 0 else None


# aiohttp asks for a socket somewhere below the call, perhaps in a task of its own, which inherits this.
current: ContextVar[DialledAddresses | None] = ContextVar("dialled", default=None)


class AddressRefused(OSError):  # noqa: N818 - a verdict, not an accident
    """The address may not be dialled."""


class AddressGuard:
    """The check sits where the socket is made, so that no name, redirect or spelling gets around it."""

    def __init__(self, settings: Settings) -> None:
        try:
            self._allowed = AllowList.parse(settings.webhook_allow)
        except ValueError as error:
            raise Misconfigured(f"SCHEDULER_WEBHOOK_ALLOW: {error}") from None
        self._own_ports = frozenset(_own_ports(settings))

    def socket(self, info: AddrInfo) -> socket.socket:
        """Make the socket for a dial, or raise AddressRefused: aiohttp's `socket_factory`."""
        place = info[4]
        call = current.get()
        host = "" if call is None else call.host
        why = self.judge(host, place[0], place[1])
        if why is not None:
            if call is not None:
                call.refusals.append(why)
            raise AddressRefused(why)
        if call is not None:
            call.dials += 1
        return bounded_socket(info)

    def judge(self, host: str, where: str, port: int) -> str | None:
        """Say why an address must not be dialled for a host; None if it may be."""
        try:
            address = ip_address(where.split("%", 1)[0])
        except ValueError:
            return f"refused: {where} is no address"
        if self._allowed.allows_name(host) or self._allowed.allows_address(address):
            return None
        what = non_public_reason(address)
        if what is None and not (port in self._own_ports and _is_local_address(address)):
            return None
        name = "" if host in ("", str(address)) else f"{host} is "
        reason = "this machine, and the port one of the sidecar's own" if what is None else f"not public ({what})"
        return f"refused: {name}{address}, which is {reason}; the operator can allow it by SCHEDULER_WEBHOOK_ALLOW"

    def judge_literal(self, host: str, port: int) -> str | None:
        """Judge a host that is an address as it is written; of a name nothing is known yet."""
        try:
            ip_address(host)
        except ValueError:
            return None
        return self.judge(host, host, port)


def _own_ports(settings: Settings) -> Iterable[int]:
    yield from (settings.metrics_port, settings.api_port)
    for url in settings.amqp_urls:
        yield urlsplit(url).port or 5672
    yield 5432


def _is_local_address(address: Address) -> bool:
    """Tell whether an address is one of this machine's: only those can be bound."""
    real = unwrapped(address)
    family = socket.AF_INET if real.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IPv4
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(real), 0))
        except OSError:
            return False
    return True
