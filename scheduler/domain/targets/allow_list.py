"""Non-public hosts that SCHEDULER_WEBHOOK_ALLOW permits: names, addresses and ranges."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from scheduler.domain.targets.public_addresses import Address, Network, unwrapped

_LABELS = r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*"
_PATTERN = re.compile(rf"(?:\*\.)?{_LABELS}\.?", re.IGNORECASE)
_ALL_DIGITS = re.compile(r"[0-9.]+(?:/.*)?|.*/.*|.*:.*")


@dataclass(frozen=True, slots=True)
class AllowList:
    """Names allowed to resolve to any address, and addresses allowed for any name."""

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()  # `.example.org` for `*.example.org`
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> "AllowList":
        """Parse the setting's entries. Raises ValueError."""
        names, suffixes, networks = [], [], []
        for entry in entries:
            if _ALL_DIGITS.fullmatch(entry):
                networks.append(_network(entry))
            elif not _PATTERN.fullmatch(entry):
                raise ValueError(f"{entry!r} is not a host name, *.name, address or range like 10.1.0.0/16")
            elif entry.startswith("*."):
                suffixes.append(entry[1:].lower().rstrip("."))
            else:
                names.append(entry.lower().rstrip("."))
        return cls(frozenset(names), tuple(suffixes), tuple(networks))

    def allows_name(self, host: str) -> bool:
        """Return whether a host is allowed regardless of its address."""
        name = host.lower().rstrip(".")
        return name in self.names or any(name.endswith(suffix) and name != suffix[1:] for suffix in self.suffixes)

    def allows_address(self, address: Address) -> bool:
        """Return whether an address is allowed regardless of the host name."""
        real = unwrapped(address)
        return any(real.version == network.version and real in network for network in self.networks)


def _network(entry: str) -> Network:
    try:
        if "/" in entry:
            return ip_network(entry)
        address = unwrapped(ip_address(entry.strip("[]")))
        return ip_network(f"{address}/{address.max_prefixlen}")
    except ValueError as error:
        raise ValueError(f"{entry!r} is not an address or a range: {error}") from None
