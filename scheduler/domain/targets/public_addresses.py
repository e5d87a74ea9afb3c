"""Addresses that are not public.

IANA's registries of special-purpose addresses (RFC 6890 and its successors), multicast, and addresses that embed
another one. Python's own `is_global` accepts several of these and differs between versions.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_TABLE = (
    ("0.0.0.0/8", "this network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared by carriers"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local, such as cloud metadata"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "for protocols"),
    ("192.0.2.0/24", "for documentation"),
    ("192.88.99.0/24", "6to4 relays"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved, or broadcast"),
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::/96", "IPv4 inside IPv6"),
    ("64:ff9b::/96", "IPv4 behind NAT64"),
    ("64:ff9b:1::/48", "IPv4 behind a local NAT64"),
    ("100::/64", "discarded"),
    ("100:0:0:1::/64", "a dummy prefix"),
    ("2001::/23", "for protocols, Teredo among them"),
    ("2001:db8::/32", "for documentation"),
    ("2002::/16", "IPv4 inside 6to4"),
    ("3fff::/20", "for documentation"),
    ("5f00::/16", "segment routing"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
NOT_PUBLIC: tuple[tuple[Network, str], ...] = tuple((ip_network(text), purpose) for text, purpose in _TABLE)
_GLOBAL_UNICAST = IPv6Network("2000::/3")  # no other IPv6 addresses are assigned


def unwrapped(address: Address) -> Address:
    """Return the IPv4 address of an IPv4-mapped IPv6 address, to which a connection would go."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def non_public_reason(address: Address) -> str | None:
    """Return the purpose of a non-public address; None if it is public."""
    real = unwrapped(address)
    for network, purpose in NOT_PUBLIC:
        if real.version == network.version and real in network:
            return purpose
    if isinstance(real, IPv6Address) and real not in _GLOBAL_UNICAST:
        return "not in use"
    return None
