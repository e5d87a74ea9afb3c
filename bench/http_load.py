"""Generate HTTP/1.1 load with minimal overhead: `python -m bench.http_load KIND URL PATHS-FILE …`.

A separate process keeps its cost out of the server's time. It shares the machine's cores with the measured processes, so
it is a single thread on plain sockets with pre-encoded requests. Prints one JSON object.
"""

import argparse
import json
import select
import socket
import time
from collections import deque
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"


class Client:
    """A keep-alive connection with at most one request in flight."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._came = b""
        self.due = 0.0

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self, request: bytes, due: float) -> None:
        """Send a request that was due at `due`."""
        self.due = due
        self._socket.sendall(request)

    def hear(self) -> int | None:
        """Read available data; return the status once the response is complete."""
        part = self._socket.recv(1 << 18)
        if not part:
            raise ConnectionError("The server closed the connection.")
        self._came += part
        head, end, rest = self._came.partition(_END)
        if not end or len(rest) < int(head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0]):
            return None
        self._came = b""
        return int(head[9:12])


def encoded(args: argparse.Namespace, method: str, path: str, body: bytes = b"") -> bytes:
    """Return the encoded request."""
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return (f"{method} {path} HTTP/1.1\r\nHost: {urlsplit(args.url).netloc}\r\n"
            f"Authorization: Bearer {args.token}\r\n{length}\r\n").encode() + body


def paced(args: argparse.Namespace, paths: list[str]) -> dict[str, object]:
    """Send requests at a fixed rate, regardless of the response times."""
    idle = deque(Client(args.url) for _ in range(args.connections))  # alternate, or the server closes idle connections
    requests = [encoded(args, "GET", path) for path in paths]
    number, count = 0, int(args.rate * args.seconds)
    late: deque[float] = deque()  # due times of requests that wait for a connection
    busy: list[Client] = []
    seconds: list[float] = []
    failures = 0
    began = time.perf_counter()
    while len(seconds) < count:
        now = time.perf_counter()
        while number + len(late) < count and (due := began + (number + len(late)) / args.rate) <= now:
            late.append(due)
        while late and idle:
            client = idle.popleft()
            client.ask(requests[number % len(requests)], late.popleft())
            busy.append(client)
            number += 1
        coming = number + len(late)
        left = max(0.0, began + coming / args.rate - time.perf_counter()) if coming < count else None
        for client in select.select(busy, (), (), left)[0]:
            status = client.hear()
            if status is not None:
                seconds.append((time.perf_counter() - client.due) * 1000)
                failures += status != 200
                busy.remove(client)
                idle.append(client)
    return {"ms": sorted(seconds), "failures": failures}


def new_job(args: argparse.Namespace, path: str) -> bytes:
    """Return a request for a job with a new id."""
    job = {"id": str(uuid4()), "job_type": "bench.job", "payload": {"note": "x" * 150}, "run_at": "2099-01-01T00:00:00Z"}
    return encoded(args, "POST", path, json.dumps(job).encode())


def flat_out(args: argparse.Namespace, paths: list[str]) -> dict[str, object]:
    """Post as fast as responses arrive, on several connections."""
    began = time.perf_counter()
    busy = [Client(args.url) for _ in range(args.connections)]
    done = failures = 0
    for client in busy:
        client.ask(new_job(args, paths[0]), began)
    while busy:
        for client in select.select(busy, (), ())[0]:
            status = client.hear()
            if status is None:
                continue
            failures += status != 201
            done += 1
            if time.perf_counter() < began + args.seconds:
                client.ask(new_job(args, paths[0]), began)
            else:
                busy.remove(client)
    return {"rate": done / (time.perf_counter() - began), "failures": failures}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["paced", "flat_out"])
    parser.add_argument("url")
    parser.add_argument("paths")  # a file with one path per line
    parser.add_argument("--token", default="none")
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=16)
    args = parser.parse_args()
    paths = Path(args.paths).read_text(encoding="utf-8").split()
    print(json.dumps({"paced": paced, "flat_out": flat_out}[args.kind](args, paths)))


if __name__ == "__main__":
    main()
