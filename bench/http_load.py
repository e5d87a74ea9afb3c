"""Requests over HTTP/1.1 with as little of our own as can be: `python -m bench.http_load URL-FILE …`.

It runs as a process of its own, so that what it costs is not the server's time. Prints one JSON object.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import uvloop


class Client:
    """One connection that is kept alive."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"

    async def open(self) -> "Client":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{length}\r\n".encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await self._reader.readexactly(size)


def body() -> bytes:
    return json.dumps({"id": str(uuid4()), "job_type": "bench.job", "payload": {"note": "x" * 150},
                       "run_at": "2099-01-01T00:00:00Z"}).encode()


async def paced(args: argparse.Namespace, paths: list[str]) -> dict[str, object]:
    """Ask so many times a second, whether the answers come in time or not."""
    clients: asyncio.Queue[Client] = asyncio.Queue()
    for _ in range(args.connections):
        clients.put_nowait(await Client(args.url, args.token).open())
    taken: list[float] = []
    failures = 0

    async def one(path: str, due: float) -> None:
        nonlocal failures
        client = await clients.get()
        status, _ = await client.ask("GET", path)
        taken.append((time.perf_counter() - due) * 1000)
        failures += status != 200
        clients.put_nowait(client)

    began, tasks = time.perf_counter(), []
    for number in range(int(args.rate * args.seconds)):
        due = began + number / args.rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(paths[number % len(paths)], due)))
    await asyncio.gather(*tasks)
    return {"ms": sorted(taken), "failures": failures}


async def flat_out(args: argparse.Namespace, paths: list[str]) -> dict[str, object]:
    """Post as fast as the answers come, on so many connections."""
    until = time.perf_counter() + args.seconds
    done = failures = 0

    async def one() -> None:
        nonlocal done, failures
        client = await Client(args.url, args.token).open()
        while time.perf_counter() < until:
            status, _ = await client.ask("POST", paths[0], body())
            failures += status != 201
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(args.connections)))
    return {"rate": done / (time.perf_counter() - began), "failures": failures}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["paced", "flat_out"])
    parser.add_argument("url")
    parser.add_argument("paths")  # a file with a path a line
    parser.add_argument("--token", default="none")
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=16)
    args = parser.parse_args()
    paths = Path(args.paths).read_text(encoding="utf-8").split()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # whose time is not the server's either
        print(json.dumps(runner.run({"paced": paced, "flat_out": flat_out}[args.kind](args, paths))))


if __name__ == "__main__":
    main()
