"""What the Python peers share. These scripts run in the peers' own environment, not in the project's."""

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
    """Say that this process is ready, and wait until all are."""
    (DIRECTORY / f"{os.getpid()}.ready").touch()
    while not (DIRECTORY / "go").exists():
        time.sleep(0.005)


class BlockingPublisher:
    """A pika connection for each thread that asks; each publish waits for its confirm."""

    def __init__(self) -> None:
        self._local = threading.local()

    def connect(self) -> None:
        import pika  # noqa: PLC0415

        self._local.channel = pika.BlockingConnection(pika.URLParameters(AMQP_URL)).channel()
        self._local.channel.confirm_delivery()

    def publish(self) -> None:
        import pika  # noqa: PLC0415

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
    """One aio-pika channel that the coroutines of a process share; each publish waits for its confirm."""

    async def connect(self) -> None:
        import aio_pika  # noqa: PLC0415

        self._connection = await aio_pika.connect(AMQP_URL)
        channel = await self._connection.channel(publisher_confirms=True)
        self._exchange = await channel.get_exchange("schedule.events", ensure=False)

    async def publish(self) -> None:
        import aio_pika  # noqa: PLC0415

        await self._exchange.publish(
            aio_pika.Message(
                BODY, content_type="application/json", delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                type="ScheduleDue", app_id="scheduler", message_id=str(uuid4()), timestamp=int(time.time()),
            ),
            "due", mandatory=True,
        )


def run(main: object) -> None:
    import uvloop  # noqa: PLC0415

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)  # type: ignore[arg-type]
