"""Shared code of the Python peers. These scripts run in the peers' own environment, not in the project's."""

import asyncio
import json
import os
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

DATABASE_URL = os.environ["DATABASE_URL"]
AMQP_URL = os.environ["AMQP_URL"]
BODY = os.environ["PEER_BODY"].encode()
COUNT = int(os.environ["PEER_COUNT"])
FIRST = float(os.environ["PEER_FIRST"])  # when the first job is due, in seconds since 1970
RATE = float(os.environ["PEER_RATE"])  # jobs that fall due a second; 0: all at once
PUBLISHES = os.environ["PEER_MODE"] == "publish"
SETTINGS = json.loads(os.environ["PEER_SETTINGS"])
DIRECTORY = Path(os.environ["PEER_DIR"])


def due_times() -> list[float]:
    return [FIRST + (n / RATE if RATE else 0.0) for n in range(COUNT)]


def instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class Meter:
    """Counts the jobs of this process, and writes what it has to a file every 20 ms."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count, self._first, self._last = 0, 0.0, 0.0
        self._lags: list[float] = []
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if not self._first:
            with self._lock:
                self._first = self._first or time.time()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._write, daemon=True)
                    self._thread.start()

    def end(self, due: float) -> None:
        with self._lock:
            self._count += 1
            self._last = time.time()
            if RATE:
                self._lags.append((self._last - due) * 1000)

    def _write(self) -> None:
        file, written = DIRECTORY / f"{os.getpid()}.meter", 0
        while True:
            if self._count != written:
                with self._lock:
                    written = self._count
                    text = json.dumps({"count": written, "first": self._first, "last": self._last, "lags": self._lags})
                file.with_suffix(".new").write_text(text, encoding="utf-8")
                file.with_suffix(".new").rename(file)
            time.sleep(0.02)


METER = Meter()


def wait_for_go() -> None:
    """Signal that this process is ready, and wait until all are."""
    (DIRECTORY / f"{os.getpid()}.ready").touch()
    while not (DIRECTORY / "go").exists():
        time.sleep(0.005)


class BlockingPublisher:
    """A pika connection for each thread that asks; each publish waits for its confirm."""

    def __init__(self) -> None:
        self._local = threading.local()

    def connect(self) -> None:
        import pika  # noqa: PLC0415 - not every peer installs it

        self._local.channel = pika.BlockingConnection(pika.URLParameters(AMQP_URL)).channel()
        self._local.channel.confirm_delivery()

    def publish(self) -> None:
        import pika  # noqa: PLC0415 - not every peer installs it

        if not hasattr(self._local, "channel"):
            self.connect()
        self._local.channel.basic_publish(
            "schedule.events", "due", BODY,
            pika.BasicProperties(
                content_type="application/json", delivery_mode=2, type="ScheduleDue", app_id="scheduler",
                message_id=str(uuid4()), timestamp=int(time.time()),
            ),
            mandatory=True,
        )


class AsyncPublisher:
    """One pika connection on the event loop that the coroutines of a process share; each publish waits for its confirm.

    aio-pika would be the usual choice, and costs three times the CPU a message.
    """

    async def connect(self) -> None:
        import pika  # noqa: PLC0415 - not every peer installs it
        from pika.adapters.asyncio_connection import AsyncioConnection  # noqa: PLC0415 - not every peer installs it

        loop = asyncio.get_running_loop()
        self._properties = pika.BasicProperties
        self._new_future = loop.create_future
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._tag, self._confirmed_up_to = 0, 0
        ready = loop.create_future()

        def opened(channel: object) -> None:
            self._channel = channel
            channel.add_on_return_callback(self._returned)  # type: ignore[attr-defined]
            channel.confirm_delivery(self._confirmed, callback=lambda _: ready.set_result(None))  # type: ignore[attr-defined]

        self._connection = AsyncioConnection(
            pika.URLParameters(AMQP_URL), on_open_callback=lambda connection: connection.channel(on_open_callback=opened),
            on_open_error_callback=lambda _, error: ready.set_exception(error), custom_ioloop=loop,
        )
        await ready

    def _returned(self, _: object, __: object, properties: object, ___: bytes) -> None:
        """Fail an unroutable message; the broker returns it before it confirms it."""
        self._waiting[properties.headers["tag"]].set_exception(RuntimeError("returned"))  # type: ignore[attr-defined]

    def _confirmed(self, frame: object) -> None:
        method = frame.method  # type: ignore[attr-defined]
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in range(self._confirmed_up_to + 1, method.delivery_tag + 1) if tag in self._waiting]
            self._confirmed_up_to = method.delivery_tag
        for tag in tags:
            future = self._waiting.pop(tag)
            if future.done():
                continue
            if method.NAME == "Basic.Ack":
                future.set_result(None)
            else:
                future.set_exception(RuntimeError("nacked"))

    def publish(self) -> "asyncio.Future[None]":
        self._tag += 1
        self._channel.basic_publish(  # type: ignore[attr-defined]
            "schedule.events", "due", BODY,
            self._properties(
                content_type="application/json", delivery_mode=2, type="ScheduleDue", app_id="scheduler",
                message_id=str(uuid4()), timestamp=int(time.time()), headers={"tag": self._tag},
            ),
            mandatory=True,
        )
        future = self._waiting[self._tag] = self._new_future()
        return future


def run(main: object) -> None:
    import uvloop  # noqa: PLC0415 - not every peer installs it

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)  # type: ignore[arg-type]
