"""What SCHEDULER_WEBHOOK_ALLOW lets webhooks reach although it is not public: names, addresses and ranges."""

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
    """Names that may resolve to anything, and addresses that any name may resolve to."""

    names: frozenset[str] = frozenset()
    below: tuple[str, ...] = ()  # of `*.example.org` the part from the dot on
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, words: Iterable[str]) -> "AllowList":
        """Read the setting's words; raise ValueError over one that is none of the three."""
        names, below, networks = [], [], []
        for word in words:
            if _ALL_DIGITS.fullmatch(word):
                networks.append(_network(word))
            elif not _PATTERN.fullmatch(word):
                raise ValueError(f"{word!r} is no host name, *.name, address or range like 10.1.0.0/16")
            elif word.startswith("*."):
                below.append(word[1:].lower().rstrip("."))
            else:
                names.append(word.lower().rstrip("."))
        return cls(frozenset(names), tuple(below), tuple(networks))

    def allows_name(self, host: str) -> bool:
        """Tell whether a host may be called whatever its address is."""
        name = host.lower().rstrip(".")
        return name in self.names or any(name.endswith(each) and name != each[1:] for each in self.below)

    def allows_address(self, address: Address) -> bool:
        """Tell whether an address may be dialled whatever name led to it."""
        real = unwrapped(address)
        return any(real.version == network.version and real in network for network in self.networks)


def _network(word: str) -> Network:
    try:
        if "/" in word:
            return ip_network(word)
        address = unwrapped(ip_address(word.strip("[]")))
        return ip_network(f"{address}/{address.max_prefixlen}")
    except ValueError as error:
        raise ValueError(f"{word!r} is no address and no range: {error}") from None
