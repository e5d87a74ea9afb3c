"""Webhooks connect only to public addresses, for names and for literals in any notation."""

import asyncio
import json
import socket

import pytest
from endpoints import answer, endpoint

from scheduler.domain.targets.urls import filled_url
from scheduler.settings import Settings
from scheduler.workers.webhook.http_call import WebhookCaller
from scheduler.workers.webhook.request import WebhookRequest, read_target


def call(*urls, allow=(), proxy=None):
    """Call the URLs one after another with one client, each on a new connection; return the results."""

    async def run():
        caller = WebhookCaller(Settings(webhook_allow=allow, webhook_proxy=proxy))
        caller.open()
        caller._session.connector._cached_hosts._ttl = 0.0
        called = []
        for url in urls:
            webhook = read_target(json.dumps({"webhook": {"url": url}}))
            request = WebhookRequest("GET", filled_url(url, {}, {}), {}, None, 30)
            called.append(await caller.call(request, webhook.endpoint, webhook.host, 60))
        await caller.close()
        return called

    return asyncio.run(run())


@pytest.fixture
def server():
    with endpoint() as made:
        yield made


@pytest.fixture
def names(monkeypatch):
    """Fake names: each resolves to its addresses; several lists are used in turn."""
    known, real = {}, socket.getaddrinfo

    def resolve(host, port, *arguments, **keywords):
        if host not in known:
            return real(host, port, *arguments, **keywords)
        addresses = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


@pytest.mark.parametrize("written", [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "localhost", "LOCALHOST", "[::1]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]",
])
def test_every_way_of_writing_loopback_is_refused(server, written):
    [called] = call(f"http://{written}:{server.port}/")
    assert (called.kind, called.outcome.retry) == ("refused", False)
    assert "not public" in called.outcome.error
    assert server.received == []


def test_a_name_is_checked_by_its_dialled_address(server, names):
    names["inside.example"] = [["127.0.0.1"]]
    [called] = call(f"http://inside.example:{server.port}/")
    assert called.kind == "refused"
    assert "inside.example is 127.0.0.1" in called.outcome.error
    [called] = call(f"http://inside.example:{server.port}/", allow=("*.example",))
    assert called.kind == "2xx"


def test_of_two_addresses_the_private_one_is_never_dialled(names):
    with endpoint("127.0.0.2") as public, endpoint("127.0.0.1") as private:
        names["both.example"] = [["127.0.0.1", "127.0.0.2"]]
        [called] = call(f"http://both.example:{public.port}/", allow=("127.0.0.2",))
        assert called.kind == "2xx"
        assert private.received == []
        # If the public address does not accept connections, that is the error, because it may accept them later.
        [called] = call(f"http://both.example:{private.port}/", allow=("127.0.0.2",))
        assert (called.kind, called.outcome.retry) == ("connection", True)
        assert private.received == []


def test_a_name_that_is_public_first_and_private_next_is_caught(names):
    with endpoint("127.0.0.2") as public:
        public.on("/", answer(200))
        names["rebind.example"] = [["127.0.0.2"], ["127.0.0.1"]]
        url = f"http://rebind.example:{public.port}/"
        first, second = call(url, url, allow=("127.0.0.2",))
        assert (first.kind, second.kind) == ("2xx", "refused")


def test_a_redirect_to_a_private_address_is_not_followed(server):
    url = server.on("/", answer(302, location="http://127.0.0.1:1/"))
    [called] = call(url, allow=("127.0.0.1",))
    assert (called.kind, called.outcome.output["status_code"]) == ("3xx", 302)


def test_an_unreachable_endpoint_has_a_clear_error():
    [called] = call("http://nobody.invalid/")
    assert (called.kind, called.outcome.retry) == ("connection", True)
    assert "name resolution failed" in called.outcome.error
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        [called] = call(f"http://127.0.0.1:{unused.getsockname()[1]}/?token=hunter2", allow=("127.0.0.1",))
    assert "cannot connect" in called.outcome.error
    assert "hunter2" not in called.outcome.error


def test_an_egress_proxy_makes_the_calls_and_a_private_literal_is_refused_all_the_same(server):
    server.on("http://example.org/path", answer(200, b"by the proxy"))
    proxy = f"http://user:word@127.0.0.1:{server.port}"
    by_name, literal = call("http://example.org/path?a=b", "http://169.254.169.254/", proxy=proxy)
    assert by_name.outcome.output["body"] == "by the proxy"
    [asked] = server.received
    assert asked.target == "http://example.org/path?a=b"
    assert asked.headers["proxy-authorization"].startswith("Basic ")
    assert (literal.kind, literal.outcome.retry) == ("refused", False)
