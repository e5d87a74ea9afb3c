"""Endpoints for webhooks: real sockets on loopback that answer by the book, or as hostile ones do."""

import contextlib
import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from support import DEADLINE, until


@dataclass
class Received:
    """A received request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Behaviour = Callable[[socket.socket, Received], None]


def answer(status: int = 200, body: bytes = b"", **headers: str) -> Behaviour:
    """Answer by the book, and close."""

    def act(connection: socket.socket, _: Received) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)

    return act


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """Behave in a different way each time."""
    left = list(behaviours)

    def act(connection: socket.socket, received: Received) -> None:
        left.pop(0)(connection, received)

    return act


def raw(data: bytes) -> Behaviour:
    """Send just this, and close."""
    return lambda connection, _: connection.sendall(data)


def endless(head: bytes, piece: bytes) -> Behaviour:
    """Send this, and then that repeatedly while the client listens."""

    def act(connection: socket.socket, _: Received) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return act


def slowly(head: bytes, piece: bytes, seconds: float) -> Behaviour:
    """Send this, and then that periodically until the client is gone."""

    def act(connection: socket.socket, _: Received) -> None:
        connection.sendall(head)
        pause = threading.Event()
        while not pause.wait(seconds):
            connection.sendall(piece)

    return act


def silent(connection: socket.socket, _: Received) -> None:
    """Never answer: wait until the caller goes."""
    connection.settimeout(DEADLINE)
    with contextlib.suppress(OSError):
        while connection.recv(1024):
            pass


@dataclass
class Endpoint:
    """A server with a behaviour by path, and its received requests."""

    port: int
    paths: dict[str, Behaviour] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    scheme: str = "http"
    host: str = "127.0.0.1"

    def url(self, path: str = "/") -> str:
        return f"{self.scheme}://{self.host}:{self.port}{path}"

    def on(self, path: str, behaviour: Behaviour) -> str:
        """Behave so when this path is called; return its URL."""
        self.paths[path] = behaviour
        return self.url(path)

    def calls(self, path: str) -> list[Received]:
        return [each for each in self.received if each.target.split("?")[0] == path]

    def one(self, path: str) -> Received:
        """Wait for a call of this path."""
        return until(lambda: self.calls(path), f"a call of {path}")[0]


@contextmanager
def endpoint(address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    """Serve on a free loopback port; paths without a behaviour return 204."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as stack:
                connection = self.request
                if tls is not None:
                    connection = stack.enter_context(tls.wrap_socket(connection, server_side=True))
                received = _read(connection)
                if received is not None:
                    made.received.append(received)
                    path = received.target.split("?")[0]
                    made.paths.get(path, answer(204))(connection, received)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            """A test looks at what the worker makes of it."""

    with Server((address, 0), Handler) as server:
        made = Endpoint(server.server_address[1], scheme="http" if tls is None else "https", host=address)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def _read(connection: socket.socket) -> Received | None:
    stream = connection.makefile("rb")
    first = stream.readline(65536).split()
    if len(first) != 3:
        return None
    headers = {}
    while (line := stream.readline(65536)) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", 0)))
    return Received(first[0].decode(), first[1].decode(), headers, body)


def event(url: str, **webhook: Any) -> dict[str, Any]:
    """Return the event of a job with this webhook, as a producer publishes it."""
    return {
        "event_id": str(uuid4()), "job_id": str(uuid4()), "job_type": "x", "payload": {}, "occurrence": 1,
        "missed": 0, "due_at": "2026-12-01T08:00:00.000000Z", "emitted_at": "2026-12-01T08:00:00.500000Z",
        "next_run_at": None,
        "target": {"webhook": {"url": url} | webhook},
        "run": {"attempt": 1, "attempts_left": 1, "max_attempts": 3, "deadline": "2026-12-01T09:00:00.500000Z",
                "timeout": 300, "max_delay": 3600},
    }


def results(host: Any, count: int) -> dict[str, dict[str, Any]]:
    """Take so many final results, by event."""
    found: dict[str, dict[str, Any]] = {}
    while len(found) < count:
        method, _, body = host.get("scheduler_results")
        said = json.loads(body)
        if method.routing_key == "result" and said["status"] != "running":
            assert said["event_id"] not in found
            found[said["event_id"]] = said
    return found
