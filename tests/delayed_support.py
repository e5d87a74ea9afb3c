"""Messages whose headers are written byte by byte, and read likewise: pika knows only some kinds of them."""

import signal
import struct
import time
from contextlib import contextmanager
from uuid import uuid4

import pika
from pika.spec import BasicProperties
from support import DEADLINE, Host, until


class Raw(pika.BasicProperties):
    """Properties that are these bytes."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self.written = raw

    def encode(self):
        return [self.written]


def short(value: bytes) -> bytes:
    return bytes((len(value),)) + value


def table(**entries: bytes) -> bytes:
    """Write a header table of encoded values, including their types; `_` stands for a hyphen."""
    body = b"".join(short(name.replace("_", "-").encode()) + value for name, value in entries.items())
    return struct.pack(">I", len(body)) + body


def headers_only(**entries: bytes) -> Raw:
    """Return properties that are persistent and have nothing but these headers."""
    return Raw(struct.pack(">H", 1 << 13 | 1 << 12) + table(**entries) + b"\x02")


def value(kind: str, code: str, number: float) -> bytes:
    return kind.encode() + struct.pack(f">{code}", number)


def text(content: bytes) -> bytes:
    return b"S" + struct.pack(">I", len(content)) + content


def raw_headers(raw: bytes) -> dict[str, bytes]:
    """Take the entries of a header table apart, as far as these tests need it: name → kind and value."""
    flags, at = struct.unpack(">H", raw[:2])[0], 2
    for bit in (15, 14):
        if flags & 1 << bit:
            at += 1 + raw[at]
    if not flags & 1 << 13:
        return {}
    end = at + 4 + struct.unpack(">I", raw[at : at + 4])[0]
    at += 4
    found = {}
    sizes = dict(zip("bBsuIilfdtDTV", (1, 1, 2, 2, 4, 4, 8, 4, 8, 1, 5, 8, 0), strict=True))
    while at < end:
        name, at = raw[at + 1 : at + 1 + raw[at]].decode(), at + 1 + raw[at]
        kind = chr(raw[at])
        size = sizes[kind] if kind in sizes else 4 + struct.unpack(">I", raw[at + 1 : at + 5])[0]
        found[name], at = raw[at : at + 1 + size], at + 1 + size
    return found


class keeping_raw:  # noqa: N801 - used as a word
    """Make pika keep the bytes of everything it reads, and continue after unreadable properties."""

    def __enter__(self):
        self.decode = decode = BasicProperties.decode

        def kept(self, encoded, offset=0):
            self.raw = bytes(encoded[offset:])
            try:
                return decode(self, encoded, offset)
            except Exception:  # noqa: BLE001 - any error of pika
                return self

        BasicProperties.decode = kept

    def __exit__(self, *_):
        BasicProperties.decode = self.decode


class Shop(Host):
    """A host that publishes delayed messages."""

    def __init__(self, amqp_url: str) -> None:
        super().__init__(amqp_url)
        self.url = amqp_url

    def queue(self, exchange: str = "schedule.delayed", *keys: str, arguments=None, binding=None) -> str:
        """Bind a new queue with its own name and these keys."""
        name = f"test_{uuid4().hex}"
        self.channel.queue_declare(name, durable=True, arguments=arguments)
        for key in keys or (name,):
            self.channel.queue_bind(name, exchange, key, binding)
        return name

    def send(
        self, key: str, body: bytes = b"", exchange: str = "schedule.delay", properties=None, **headers
    ) -> None:
        """Publish with headers; `_` in a name stands for a hyphen."""
        named = {name.replace("_", "-"): each for name, each in headers.items()}
        self.channel.basic_publish(
            exchange, key, body, properties or pika.BasicProperties(headers=named, delivery_mode=2), mandatory=True
        )

    def take(self, queue: str, count: int) -> list:
        """Take the next messages, each as (method, properties, body)."""
        return [self.get(queue) for _ in range(count)]


def bodies(messages) -> list[bytes]:
    return [body for _, _, body in messages]


def waiting(sidecar) -> list[dict]:
    return sidecar.sql("SELECT * FROM delayed_messages WHERE exchange IS NOT NULL ORDER BY wake_at, id")


def stored(sidecar, count: int) -> list[dict]:
    """Wait until so many wait."""
    def there():
        rows = waiting(sidecar)
        return (rows,) if len(rows) == count else None

    return until(there,
 f"{count} delayed messages stored", DEADLINE)[0]


@contextmanager
def frozen(process):
    """Freeze a process for the duration of the block."""
    process.popen.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.popen.send_signal(signal.SIGCONT)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
