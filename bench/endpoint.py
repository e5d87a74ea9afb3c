"""A webhook endpoint for benchmarks, as a separate process: responds, counts, reports times, fails or hangs."""

import asyncio
import json
import sys
import time
from datetime import datetime
from typing import ClassVar

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FAILURE = b"HTTP/1.1 500 Oh no\r\nContent-Length: 2\r\n\r\nno"


class Server(asyncio.Protocol):
    """Minimal HTTP for a keep-alive client, so that the endpoint is not the limit."""

    count = 0
    first = last = 0.0
    late: ClassVar[list[float]] = []

    def connection_made(self, transport):
        self.transport = transport
        self.data = b""

    def data_received(self, data):
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end]
            length_at = head.lower().find(b"content-length:")
            size = int(head[length_at + 15 : (head + b"\r\n").find(b"\r\n", length_at)]) if length_at >= 0 else 0
            if len(self.data) < end + 4 + size:
                return
            body = self.data[end + 4 : end + 4 + size]
            self.data = self.data[end + 4 + size :]
            self.request(head.split(b" ", 2)[1], body)

    def request(self, path, body):
        now = time.time()
        if path == b"/stats":
            seen = {"count": Server.count, "seconds": Server.last - Server.first, "late": Server.late}
            answer = json.dumps(seen).encode()
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
            return
        Server.count += 1
        Server.first = Server.first or now
        Server.last = now
        if path == b"/timed":
            due_at = json.loads(body)["due_at"]
            Server.late.append((now - datetime.fromisoformat(due_at).timestamp()) * 1000)
        if path == b"/broken" or (path == b"/flaky" and json.loads(body)["run"]["attempt"] == 1):
            self.transport.write(FAILURE)
        elif path != b"/hang":
            self.transport.write(ANSWER)


async def main():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the parent process exits


if __name__ == "__main__":
    asyncio.run(main())
