"""Clients that do not read their responses, over real sockets."""

import asyncio
import socket
import threading
from contextlib import ExitStack, contextmanager, nullcontext, suppress

import pytest
import uvicorn
import uvloop
from support import DEADLINE, until

from scheduler.api import request_middleware, slow_clients
from scheduler.api.identity import Identity, Role
from scheduler.api.rate_limit import MAX_IN_PROGRESS, RateLimit
from scheduler.api.request_middleware import RequestMiddleware
from scheduler.api.slow_clients import TimeoutProtocol

LARGE = 4_000_000


class Application:
    """Sends a large body, many small ones, or a stream without end, for one token per path."""

    def __init__(self):
        self.limit = RateLimit(1_000_000)
        self.began, self.ended = [], []

    async def __call__(self, scope, receive, send):
        path = scope["path"]
        await self.limit.admit(Identity("ann", Role.VIEWER, None, path))
        self.began.append(path)
        try:
            if "stream" in path:
                headers = [(b"content-type", b"text/event-stream")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                while not (await self._disconnected(receive)):
                    await send({"type": "http.response.body", "body": b"data: x\n\n" * 10_000, "more_body": True})
                return
            size = int(path.rpartition("/")[2])
            headers = [(b"content-length", str(size).encode()), (b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"x" * size, "more_body": False})
        finally:
            self.ended.append(path)

    async def _disconnected(self, receive):
        try:
            async with asyncio.timeout(0.001):
                while True:
                    if (await receive())["type"] == "http.disconnect":
                        return True
        except TimeoutError:
            return False


@contextmanager
def serve():
    """Serve an application on a thread; yield it, its port and uvicorn's connections."""
    app = Application()
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(RequestMiddleware(app), log_config=None, lifespan="off", http=TimeoutProtocol,
                            ws="none", timeout_keep_alive=1, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # only the main thread may
    thread = threading.Thread(target=_run, args=(server, listening))
    thread.start()
    try:
        until(lambda: server.started, "the server")
        yield app, listening.getsockname()[1], server.server_state.connections
    finally:
        server.should_exit = True
        thread.join()


def _run(server, listening):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve([listening]))


def ask(port, path, *, close=False):
    """Send a request over a socket with a small buffer, and read nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(DEADLINE)
    client.connect(("127.0.0.1", port))
    connection = "close" if close else "keep-alive"
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n".encode())
    return client


def read_all(client):
    """Return the number of bytes received until the server closes the connection."""
    count = 0
    with suppress(ConnectionResetError):
        while data := client.recv(65536):
            count += len(data)
    return count


@pytest.mark.parametrize("path", ["/a/4000000", "/stream"])
@pytest.mark.parametrize("close", [False, True])
def test_a_client_that_does_not_read_is_disconnected(monkeypatch, path, close):
    monkeypatch.setattr(slow_clients, "UNREAD_SECONDS", 0.2)
    with serve() as (app, port, connections), ask(port, path, close=close) as client:
        until(lambda: app.began, "the request")
        until(lambda: app.ended and not connections, "the end of the request and of the connection")
        assert read_all(client) < LARGE


def test_the_rest_in_a_closing_connection_has_the_same_limit(monkeypatch):
    """uvicorn closes after the response, but the operating system has not taken all of it."""
    monkeypatch.setattr(slow_clients, "UNREAD_SECONDS", 0.2)
    with serve() as (app, port, connections), ExitStack() as clients:
        # A part is not split up: all of it is in the transport's buffer when the request has ended.
        monkeypatch.setattr(request_middleware, "PART_BYTES", LARGE)
        clients.enter_context(ask(port, f"/a/{LARGE}", close=True))
        until(lambda: app.ended, "the end of the request")
        until(lambda: not connections, "the end of the connection")


def test_an_idle_connection_with_an_unread_response_is_closed():
    with serve() as (app, port, connections), pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_middleware, "PART_BYTES", LARGE)
        with ask(port, f"/a/{LARGE}"):
            until(lambda: app.ended, "the end of the request")
            until(lambda: not connections, "the end of the connection")


def test_a_client_that_reads_slowly_gets_everything(monkeypatch):
    """The time is for each part, not for the whole response."""
    monkeypatch.setattr(slow_clients, "UNREAD_SECONDS", DEADLINE)
    with serve() as (app, port, _), ask(port, f"/a/{LARGE}", close=True) as client:
        until(lambda: app.began, "the request")
        assert not app.ended  # it is in progress until the client has read almost all of it
        assert read_all(client) > LARGE
        until(lambda: app.ended, "the end of the request")


def test_a_token_can_have_only_so_many_unread_responses():
    with serve() as (app, port, _), ExitStack() as clients:
        for _ in range(3 * MAX_IN_PROGRESS):
            clients.enter_context(ask(port, f"/acme/{LARGE}"))
        until(lambda: len(app.began) == MAX_IN_PROGRESS, "as many requests as may be in progress")
        with ask(port, "/globex/1000", close=True) as other:
            assert read_all(other) > 1000  # is served although requests of acme came first
        assert len(app.began) == MAX_IN_PROGRESS + 1


def test_live_streams_do_not_count_as_in_progress():
    with serve() as (app, port, _), ExitStack() as clients:
        for _ in range(MAX_IN_PROGRESS + 2):
            clients.enter_context(ask(port, "/stream"))
        until(lambda: len(app.began) == MAX_IN_PROGRESS + 2, "all streams")


def test_all_unread_responses_together_have_a_limit(monkeypatch):
    monkeypatch.setattr(request_middleware, "MAX_UNSENT_BYTES", 3 * LARGE)
    with serve() as (app, port, _), ExitStack() as clients:
        first = clients.enter_context(ask(port, f"/1/{LARGE}"))
        until(lambda: len(app.began) == 1, "the first request")
        for number in (2, 3):
            clients.enter_context(ask(port, f"/{number}/{LARGE}"))
        until(lambda: len(app.began) == 3, "two more requests")
        assert not app.ended
        clients.enter_context(ask(port, f"/4/{LARGE}"))
        assert read_all(first) < LARGE  # the oldest is disconnected
        assert app.ended == [f"/1/{LARGE}"]
