"""Only addresses that RabbitMQ can decode get direct replies."""

import base64
import struct

import pytest

from scheduler.rabbit.reply_address import MAX_NODES, ReplyAddresses

GENUINE = "amq.rabbitmq.reply-to.g1h2AA9yZXBseUAxMTk5OTk4MjgAAF1+AAAABGr9nsw=.Z+KiWxwg23P2dNckBSWQQw=="
KEY = base64.b64encode(bytes(16)).decode()


def direct(node: bytes, tag: bytes = b"\x83Xv", tail: bytes = bytes(12), key: str = KEY) -> str:
    process = base64.b64encode(tag + struct.pack(">H", len(node)) + node + tail).decode()
    return f"amq.rabbitmq.reply-to.{process}.{key}"


@pytest.mark.parametrize("addresses", [ReplyAddresses(), ReplyAddresses(["a"]), ReplyAddresses(untrusted=True)])
def test_generated_addresses_are_allowed(addresses):
    assert addresses.allow(GENUINE, "acme")
    assert addresses.allow(direct(b"generated@7"), None)


@pytest.mark.parametrize("name", [
    "amq.rabbitmq.reply-to", "amq.rabbitmq.reply-to.", "amq.rabbitmq.reply-to.g2QAA2Zvbw==.k1",
    "amq.rabbitmq.reply-to.é.é", direct(b"reply@1").replace("g1h2AAd", "g1h2AAg"),
    direct(b"rabbit@host"), direct(b"reply@"), direct(b"reply@1\n"), direct(b"reply@1", tag=b"\x83gv"),
    direct(b"reply@1", tail=bytes(11)), direct(b"reply@1", tail=bytes(13)), direct(b"reply@1", key="k1"),
    direct(b"reply@1", key=""), direct(b"reply@1", key=f"{KEY}.{KEY}"),
])
def test_other_direct_addresses_are_not_allowed(name):
    assert not ReplyAddresses().allow(name, "acme")


def test_the_number_of_nodes_is_limited_for_each_user():
    addresses = ReplyAddresses(untrusted=True)
    known = [direct(b"reply@%d" % number) for number in range(MAX_NODES)]
    assert all(addresses.allow(name, "acme") for name in known)
    assert not addresses.allow(direct(b"reply@99"), "acme")
    assert addresses.allow(known[0], "acme")
    assert addresses.allow(direct(b"reply@99"), "globex")


def test_a_client_is_the_verified_user_or_else_the_queue():
    assert ReplyAddresses().client("queue", "acme") == "acme"
    assert ReplyAddresses().client("queue", None) == "queue"
    assert ReplyAddresses(untrusted=True).client("queue", None) == ""
