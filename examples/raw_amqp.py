"""No client library at all: AMQP 0-9-1 over a socket, with Python's standard library only.

    AMQP_URL=amqp://guest:guest@localhost:5672/%2F python examples/raw_amqp.py

For a language without an AMQP client: this is all that a host needs of the protocol. Every method is a frame
of type 1 with two numbers, its class and its method; a message is a method frame, a header frame and body
frames. A host that can reach only its own database needs even less: `INSERT INTO scheduler_outbox …`, see
sql/host/outbox.sql, and `scheduler outbox` does the rest.
"""

import json
import os
import socket
import struct
import uuid
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote, urlsplit

METHOD, HEADER, BODY, HEARTBEAT, END = 1, 2, 3, 8, b"\xce"
CONTENT_TYPE_AND_DELIVERY_MODE = 0x8000 | 0x1000  # which properties the header frame carries


class Amqp:
    """One connection with one channel, in confirm mode."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port or 5672), timeout=30)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.expect(10, 10)  # connection.start
        login = f"\0{unquote(parts.username or 'guest')}\0{unquote(parts.password or 'guest')}"
        self.send(0, 10, 11, table() + short("PLAIN") + long(login) + short("en_US"))
        tune = self.expect(10, 30)
        self.send(0, 10, 31, tune[:6] + struct.pack(">H", 0))  # take its limits; no heartbeats
        self.send(0, 10, 40, short(unquote(parts.path[1:]) or "/") + short("") + b"\0")
        self.expect(10, 41)
        self.send(1, 20, 10, short(""))  # channel.open
        self.expect(20, 11)
        self.send(1, 85, 10, b"\0")  # confirm.select
        self.expect(85, 11)

    def publish(self, exchange: str, key: str, body: bytes) -> None:
        """Return once a queue has the message."""
        mandatory = 1
        self.send(1, 60, 40, struct.pack(">H", 0) + short(exchange) + short(key) + bytes([mandatory]))
        properties = short("application/json") + bytes([2])  # 2: persistent
        self.frame(HEADER, 1, struct.pack(
            ">HHQH", 60, 0, len(body), CONTENT_TYPE_AND_DELIVERY_MODE) + properties)
        self.frame(BODY, 1, body)  # in several frames if it were larger than the broker's limit
        kind, _ = self.method()
        if kind != (60, 80):  # basic.ack; before it comes basic.return if no queue took the message
            raise SystemExit("no sidecar has ever started on this virtual host")

    def consume(self, queue: str) -> None:
        """Start to consume a queue."""
        self.send(1, 60, 20, struct.pack(">H", 0) + short(queue) + short("") + b"\0" + table())
        self.expect(60, 21)

    def receive(self) -> tuple[bytes, bytes]:
        """Wait for a message; return its delivery tag and its body."""
        arguments = self.expect(60, 60)  # basic.deliver
        tag = arguments[1 + arguments[0] :][:8]
        size = struct.unpack(">Q", self.read(HEADER)[4:12])[0]
        body = b""
        while len(body) < size:
            body += self.read(BODY)
        return tag, body

    def acknowledge(self, tag: bytes) -> None:
        """Acknowledge a message."""
        self.send(1, 60, 80, tag + b"\0")

    def close(self) -> None:
        """Close the connection, after the broker has received everything."""
        self.send(0, 10, 50, struct.pack(">H", 200) + short("bye") + struct.pack(">HH", 0, 0))
        self.expect(10, 51)
        self.file.close()
        self.socket.close()

    def send(self, channel: int, class_id: int, method_id: int, arguments: bytes) -> None:
        self.frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)

    def frame(self, kind: int, channel: int, payload: bytes) -> None:
        self.socket.sendall(struct.pack(">BHI", kind, channel, len(payload)) + payload + END)

    def method(self) -> tuple[tuple[int, int], bytes]:
        payload = self.read(METHOD)
        return struct.unpack(">HH", payload[:4]), payload[4:]

    def expect(self, class_id: int, method_id: int) -> bytes:
        kind, arguments = self.method()
        if kind != (class_id, method_id):  # connection.close and channel.close carry a code and a text
            raise SystemExit(f"the broker said {kind}: {arguments!r}")
        return arguments

    def read(self, expected: int) -> bytes:
        kind = HEARTBEAT
        while kind == HEARTBEAT:
            kind, _, size = struct.unpack(">BHI", self.file.read(7))
            payload = self.file.read(size + 1)[:-1]
        if kind != expected:
            raise SystemExit(f"received a frame of type {kind}, expected type {expected}")
        return payload


def short(text: str) -> bytes:
    return bytes([len(text.encode())]) + text.encode()


def long(text: str) -> bytes:
    return struct.pack(">I", len(text.encode())) + text.encode()


def table() -> bytes:
    return struct.pack(">I", 0)  # an empty one


def main() -> None:
    amqp = Amqp(os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F"))
    job, now = str(uuid.uuid4()), datetime.now(UTC)
    amqp.publish("schedule.commands", "request", json.dumps({
        "id": job, "job_type": "invoice.reminder", "payload": {"invoice": 42},
        "run_at": (now + timedelta(seconds=2)).isoformat(timespec="microseconds"),
        "issued_at": now.isoformat(timespec="microseconds"),
    }).encode())
    print(f"requested {job}")
    amqp.consume("mainapp_due")
    event = {}
    while event.get("job_id") != job:
        tag, body = amqp.receive()
        event = json.loads(body)
        print(f"reminded of invoice {event['payload']['invoice']}, due at {event['due_at']}")
        amqp.acknowledge(tag)
    amqp.close()


if __name__ == "__main__":
    main()
