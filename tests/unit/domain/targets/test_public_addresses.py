"""The table of addresses, read like a specification: what may be dialled, and what may not, and why."""

import socket
from ipaddress import ip_address

import pytest

from scheduler.domain.errors import Misconfigured
from scheduler.domain.targets.public_addresses import NOT_PUBLIC, non_public_reason
from scheduler.settings import Settings
from scheduler.workers.webhook.address_guard import AddressGuard

PUBLIC = (
    "1.1.1.1", "8.8.8.8", "11.0.0.1", "100.63.255.255", "100.128.0.0", "128.0.0.1", "169.253.255.255",
    "172.15.255.255", "172.32.0.0", "192.0.1.1", "192.167.1.1", "198.17.0.1", "198.20.0.1", "203.0.112.1",
    "223.255.255.255", "2606:4700:4700::1111", "2a00:1450::1", "2001:200::1", "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
)
REFUSED = {
    "0.0.0.0": "this network", "0.1.2.3": "this network", "10.255.255.255": "private", "100.64.0.1": "carriers",
    "127.0.0.1": "loopback", "127.255.255.254": "loopback", "169.254.169.254": "metadata", "172.16.0.1": "private",
    "172.31.255.255": "private", "192.0.0.8": "protocols", "192.0.2.1": "documentation", "192.88.99.1": "6to4",
    "192.168.0.1": "private", "198.18.0.1": "benchmarks", "198.19.255.255": "benchmarks",
    "198.51.100.1": "documentation", "203.0.113.1": "documentation", "224.0.0.1": "multicast",
    "239.255.255.255": "multicast", "240.0.0.1": "reserved", "255.255.255.255": "broadcast",
    "::": "unspecified", "::1": "loopback", "::7f00:1": "IPv4 inside", "::ffff:127.0.0.1": "loopback",
    "::ffff:10.0.0.1": "private", "::ffff:169.254.169.254": "metadata", "64:ff9b::7f00:1": "NAT64",
    "64:ff9b:1::1": "NAT64", "100::1": "discarded", "2001::1": "Teredo", "2001:db8::1": "documentation",
    "2002:7f00:1::": "6to4", "3fff::1": "documentation", "5f00::1": "segment", "fc00::1": "private",
    "fd00:ec2::254": "private", "fe80::1": "link-local", "fec0::1": "site-local", "ff02::1": "multicast",
    "4000::1": "not in use", "1::1": "not in use",
}


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address):
    assert non_public_reason(ip_address(address)) is None


@pytest.mark.parametrize(("address", "what"), REFUSED.items())
def test_not_public(address, what):
    assert what in non_public_reason(ip_address(address))


@pytest.mark.parametrize("network", [network for network, _ in NOT_PUBLIC], ids=str)
def test_both_ends_of_each_range_are_refused(network):
    assert non_public_reason(network[0])
    assert non_public_reason(network[-1])


def judged(host, where, *allow, port=443):
    return AddressGuard(Settings(webhook_allow=allow)).check(host, where, port)


@pytest.mark.parametrize(("host", "where", "allow"), [
    ("a.example.org", "10.0.0.1", "*.example.org"),
    ("A.B.EXAMPLE.org.", "10.0.0.1", "*.Example.ORG"),
    ("internal", "127.0.0.1", "internal"),
    ("x.org", "10.1.2.3", "10.1.0.0/16"),
    ("x.org", "::ffff:10.1.2.3", "10.1.2.3"),
    ("x.org", "fd00::1", "fd00::/8"),
    ("::1", "::1", "[::1]"),
])
def test_the_operator_allows(host, where, allow):
    assert judged(host, where)
    assert judged(host, where, "other.org", allow) is None


@pytest.mark.parametrize(("host", "where", "allow"), [
    ("example.org", "10.0.0.1", "*.example.org"),
    ("badexample.org", "10.0.0.1", "*.example.org"),
    ("example.org.evil.net", "10.0.0.1", "*.example.org"),
    ("a.internal", "127.0.0.1", "internal"),
    ("x.org", "10.2.0.1", "10.1.0.0/16"),
    ("10.1.2.3", "10.2.0.1", "10.1.2.3"),
])
def test_and_no_more_than_that(host, where, allow):
    assert where in judged(host, where, allow)


@pytest.mark.parametrize("word", ["10.0.0.0/33", "10.1", "*.*.org", "http://x.org", "a b", "*", "10.0.0.1/8"])
def test_an_allow_list_that_says_nothing_is_a_bad_setting(word):
    with pytest.raises(Misconfigured, match="SCHEDULER_WEBHOOK_ALLOW"):
        AddressGuard(Settings(webhook_allow=(word,)))


def test_a_refusal_says_what_and_why_and_what_to_do():
    why = judged("metadata.internal", "169.254.169.254")
    for word in ("refused", "metadata.internal is 169.254.169.254", "cloud metadata", "SCHEDULER_WEBHOOK_ALLOW"):
        assert word in why


def test_our_own_ports_are_refused_under_any_address_of_this_machine(monkeypatch):
    monkeypatch.setattr("scheduler.workers.webhook.address_guard._is_local_address",
                        lambda address: str(address) == "8.8.8.8")
    for port in (8000, 8080, 5672, 5432):
        assert "port of the sidecar" in judged("x.org", "8.8.8.8", port=port)
        assert judged("x.org", "8.8.4.4", port=port) is None
    assert judged("x.org", "8.8.8.8") is None


def test_the_guard_makes_sockets_only_for_what_may_be_dialled():
    guard = AddressGuard(Settings())
    with pytest.raises(OSError, match="loopback"):
        guard.socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80)))
    with guard.socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("8.8.8.8", 80))) as made:
        assert not made.getblocking()
