"""A TCP proxy in a separate process: adds latency, limits bandwidth, freezes and cuts connections.

The parent sends one JSON object a line on standard input; the proxy prints one JSON object for each connection.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
CHUNK = 65536


class Link:
    """One listening port that forwards to one server."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.target = target
        self.delay = 0.0
        self.rate = 0.0
        self.flows = asyncio.Event()
        self.flows.set()
        self.refuses = False
        self.writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tell({"accept": self.name, "t": time.time()})
        if self.refuses:
            writer.close()
            return
        try:
            upstream = await asyncio.open_connection(LOOPBACK, self.target)
        except OSError:
            writer.close()
            return
        both = {writer, upstream[1]}
        self.writers |= both
        pumps = [asyncio.create_task(self.pump(reader, upstream[1])),
                 asyncio.create_task(self.pump(upstream[0], writer))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self.writers -= both
        for each in both:
            each.close()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction; delayed data stays in flight, so that latency does not limit bandwidth."""
        flight: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)

        async def land() -> None:
            while True:
                due, data = await flight.get()
                if (wait := due - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                await self.flows.wait()
                if self.rate:
                    await asyncio.sleep(len(data) / self.rate)
                writer.write(data)
                await writer.drain()

        landing = asyncio.create_task(land())
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(CHUNK):
                await flight.put((time.monotonic() + self.delay, data))
            while not flight.empty() and not landing.done():  # noqa: ASYNC110 - once a connection, at its end
                await asyncio.sleep(0.01)
        landing.cancel()

    def cut(self) -> None:
        for writer in self.writers:
            with contextlib.suppress(Exception):
                writer.transport.abort()


def tell(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def main() -> None:
    links: dict[str, Link] = {}
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        order = json.loads(line)
        name = order["link"]
        match order["do"]:
            case "open":
                links[name] = Link(name, order["target"])
                server = await asyncio.start_server(links[name].serve, LOOPBACK, 0)
                tell({"opened": name, "port": server.sockets[0].getsockname()[1]})
            case "set":
                links[name].delay = order.get("delay", 0.0)
                links[name].rate = order.get("rate", 0.0)
            case "freeze":
                links[name].flows.clear()
            case "thaw":
                links[name].flows.set()
            case "cut":
                links[name].cut()
            case "refuse":
                links[name].refuses = order["yes"]


class Proxy:
    """The parent's side: opens links and changes them."""

    def __init__(self, heard: Callable[[dict[str, Any]], None]) -> None:
        self._heard = heard
        self._ports: dict[str, int] = {}
        self._news = threading.Condition()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torture.proxy"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, cwd=Path(__file__).parent.parent,
        )
        threading.Thread(target=self._listen, name="proxy", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self, link: str, target: int) -> int:
        """Return a port that leads to `target` through this link."""
        self.do("open", link, target=target)
        with self._news:
            self._news.wait_for(lambda: link in self._ports, timeout=30)
            return self._ports[link]

    def do(self, what: str, link: str, **more: Any) -> None:
        with self._lock:
            self._process.stdin.write(json.dumps({"do": what, "link": link, **more}) + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        for line in self._process.stdout:
            message = json.loads(line)
            if "opened" in message:
                with self._news:
                    self._ports[message["opened"]] = message["port"]
                    self._news.notify_all()
            else:
                self._heard(message)

    def close(self) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


if __name__ == "__main__":
    try:
        import uvloop
        uvloop.run(main())
    except ImportError:
        asyncio.run(main())
