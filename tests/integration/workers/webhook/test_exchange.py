"""HttpExchanges behaves like aiohttp's ClientSession, also when it reuses and closes connections."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import pytest
from endpoints import _read, answer, endpoint, raw

from scheduler.settings import Settings
from scheduler.workers.webhook import exchange, http_call
from scheduler.workers.webhook.http_call import WebhookCaller
from scheduler.workers.webhook.request import WebhookRequest

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEADERS = {"User-Agent": "x/1", "Accept": "*/*", "Accept-Encoding": "identity", "X-Odd": "\u00fc\t;"}


def call(*requests):
    """Make the calls one after another by one client, and return how they went."""

    async def run():
        caller = WebhookCaller(Settings(webhook_allow=("127.0.0.1",)))
        caller.open()
        called = [await caller.call(request, "there", "127.0.0.1", 60) for request in requests]
        await caller.close()
        return called

    return asyncio.run(run())


@contextmanager
def keeping(*connections):
    """Send the given responses on the first and the second connection; close each at its next request."""
    served = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            for index, answers in enumerate(connections):
                connection, _ = listening.accept()
                with connection:
                    for number, said in enumerate((*answers, b"")):
                        asked = _read(connection)
                        if asked is None:
                            break
                        served.append((index, number, asked.method))
                        connection.sendall(said)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", served


@pytest.mark.parametrize(("method", "path", "body"), [
    ("POST", "/a%2Fb/../c?d=%20&e", b'{"f":1}'), ("PUT", "/?x=1", b""), ("PATCH", "/%C3%BC", b"\xff\x00"),
    ("DELETE", "/", b"x" * 300_000), ("GET", "/a;b", None),
])
def test_http_exchanges_match_the_client_session(monkeypatch, method, path, body):
    assert exchange.is_supported(), "this aiohttp is one that was tried"
    with endpoint() as server:
        target = path.split("?")[0]
        server.on(target, raw(b"HTTP/1.1 418 No\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nX-A: \xff\r\n\r\nbody"))
        headers = HEADERS if body is None else HEADERS | {"Content-Type": "text/x"}
        request = WebhookRequest(method, server.url(path), headers, body, 30)
        [directly] = call(request)
        monkeypatch.setattr(http_call, "is_supported", lambda: False)
        [by_session] = call(request)
        first, second = server.received
    assert (first.method, first.target, first.body) == (second.method, second.target, second.body)
    assert first.headers == second.headers
    for each in (directly, by_session):
        each.outcome.output.pop("duration_ms")
    assert directly == by_session
    assert directly.outcome.output["headers"]["set-cookie"] == "a=b, c=d"


def test_a_connection_is_kept_for_the_next_call(monkeypatch):
    for _ in range(2):
        with keeping([OK, b"HTTP/1.1 204 No Content\r\n\r\n", OK]) as (url, served):
            called = call(*(WebhookRequest("POST", url, {}, b"x", 30) for _ in range(3)))
            assert [each.outcome.output["body"] for each in called] == ["ok", "", "ok"]
            assert served == [(0, 0, "POST"), (0, 1, "POST"), (0, 2, "POST")]
        monkeypatch.setattr(http_call, "is_supported", lambda: False)


@pytest.mark.parametrize("last", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20000,  # more than is read
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
])
def test_unusable_connections_are_not_reused(last):
    with keeping([OK, last], [OK]) as (url, served):
        called = call(*(WebhookRequest("POST", url, {}, b"x", 30) for _ in range(3)))
        assert [each.kind for each in called] == ["2xx"] * 3
        assert served[-1] == (1, 0, "POST")


def test_idempotent_requests_are_repeated_on_a_closed_connection():
    with keeping([OK], [OK]) as (url, served):
        called = call(*(WebhookRequest(method, url, {}, b"x", 30) for method in ("POST", "PUT")))
        assert [each.kind for each in called] == ["2xx", "2xx"]
        assert served == [(0, 0, "POST"), (0, 1, "PUT"), (1, 0, "PUT")]
    with keeping([OK], [OK]) as (url, served):
        first, second = call(*(WebhookRequest("POST", url, {}, b"x", 30) for _ in range(2)))
        assert (first.kind, second.kind, second.outcome.retry) == ("2xx", "connection", True)
        assert "closed the connection" in second.outcome.error
        assert served == [(0, 0, "POST"), (0, 1, "POST")]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
def test_an_endpoint_that_hangs_up_on_a_new_connection_is_asked_once(method):
    with keeping([], [OK]) as (url, served):
        [called] = call(WebhookRequest(method, url, {}, None, 30))
        assert (called.kind, called.outcome.retry) == ("connection", True)
        assert served == [(0, 0, method)]


def test_no_header_breaks_into_a_second_one():
    with endpoint() as server:
        server.on("/", answer(200))
        for value in ("a\r\nX-Evil: b", "a\nX-Evil: b", "a\rb", "a\0b"):
            [called] = call(WebhookRequest("GET", server.url("/"), {"X-A": value}, None, 30))
            assert called.kind == "connection"
        assert server.received == []
