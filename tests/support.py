"""A host application and a supervisor, as tests see them: plain pika, plain SQL, real processes."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pika
import psycopg2
import psycopg2.extras

from scheduler.domain.errors import Unavailable
from scheduler.emitting.batch import DECIDE_SECONDS

DEADLINE = 60.0  # for what hangs: no test is decided by it, and one that passes does not wait for it


def until(condition: Callable[[], Any], what: str, within: float = DEADLINE) -> Any:
    """Wait for `condition` to be true and return its value; fail with `what` after the deadline."""
    deadline = time.monotonic() + within
    pause = threading.Event()
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        pause.wait(0.02)


def utc(**ahead: float) -> datetime:
    return datetime.now(UTC) + timedelta(**ahead)


def iso(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def patiently(act: Callable[[], Any]) -> Any:
    """Retry an operation with a short timeout until it succeeds: a busy machine may need longer."""
    def done() -> tuple[Any] | None:
        nonlocal problem
        try:
            return (act(),)
        except Unavailable as error:
            problem = error
            return None

    problem: Unavailable | None = None
    try:
        return until(done, "a server's answer")[0]
    except AssertionError as error:
        raise error from problem


def amqp(url: str) -> pika.BlockingConnection:
    """Open a connection without timeouts: the broker may be busy, and the test may wait for something else."""
    parameters = pika.URLParameters(url)
    parameters.socket_timeout = parameters.stack_timeout = DEADLINE
    parameters.heartbeat = 0
    return pika.BlockingConnection(parameters)


class Host:
    """The monolith: publishes commands, receives events. None of our code."""

    def __init__(self, amqp_url: str) -> None:
        self.connection = amqp(amqp_url)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def publish(self, key: str, body: Any, exchange: str = "schedule.commands", **properties: Any) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        properties = {"content_type": "application/json", "delivery_mode": 2} | properties
        self.channel.basic_publish(exchange, key, raw, pika.BasicProperties(**properties), mandatory=True)

    def request(self, **fields: Any) -> str:
        body = {"id": str(uuid4()), "job_type": "test.job"} | fields
        self.publish("request", body)
        return body["id"]

    def get(self, name: str, within: float = DEADLINE) -> tuple[Any, pika.BasicProperties, bytes]:
        """Take the next message of a queue."""
        return until(
            lambda: _got(self.channel.basic_get(name, auto_ack=True)), f"a message in {name}", within
        )

    def due(self, count: int = 1, within: float = DEADLINE) -> list[dict[str, Any]]:
        """Take the next `count` ScheduleDue."""
        return [json.loads(self.get("mainapp_due", within)[2]) for _ in range(count)]

    def drain(self, name: str) -> list[bytes]:
        """Consume all messages in a queue."""
        bodies = []
        while (got := self.channel.basic_get(name, auto_ack=True))[0]:
            bodies.append(got[2])
        return bodies

    def listen(self, exchange: str, key: str) -> str:
        """Bind a private queue and return its name."""
        name = self.channel.queue_declare("", exclusive=True).method.queue
        self.channel.queue_bind(name, exchange, key)
        return name

    def close(self) -> None:
        if self.connection.is_open:
            self.connection.close()


def _got(answer: Any) -> Any:
    return answer if answer[0] is not None else None


class Process:
    """A real process, with its log lines."""

    def __init__(
        self, role: str, env: dict[str, str], *arguments: str, command: list[str] | None = None
    ) -> None:
        self.role = role
        self.lines: list[dict[str, Any]] = []
        self.raw: list[str] = []
        self._ports: queue.SimpleQueue[int] = queue.SimpleQueue()
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SCHEDULER_", "METRICS_", "LOG_"))}
        self.popen = subprocess.Popen(
            [*(command or [sys.executable, "-m", "scheduler"]), role, *arguments],
            env=clean | {"METRICS_HOST": "127.0.0.1", "METRICS_PORT": "0"} | env,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._port: int | None = None

    def _read(self) -> None:
        assert self.popen.stderr
        for line in self.popen.stderr:
            self.raw.append(line)
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            self.lines.append(entry)
            if "metrics_port" in entry:
                self._ports.put(entry["metrics_port"])

    @property
    def port(self) -> int:
        if self._port is None:
            try:
                self._port = self._ports.get(timeout=DEADLINE)
            except queue.Empty:
                raise AssertionError(f"{self.role} did not start: {self.raw}") from None
        return self._port

    def http(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=DEADLINE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        total = 0.0
        for line in self.http("/metrics")[1].splitlines():
            if line.split("{")[0].split(" ")[0] == name:
                total += float(line.rsplit(" ", 1)[1])
        return total

    def ready(self) -> "Process":
        until(lambda: self.http("/readyz")[0] == 200, f"{self.role} ready: {self.raw[-5:]}")
        return self

    @property
    def orderly(self) -> bool:
        """Whether it logged its last line before it ended; a process that was frozen while stopping did not."""
        return bool(self.lines) and self.lines[-1].get("event") == "stopped"

    def logged(self, event: str, within: float = DEADLINE) -> dict[str, Any]:
        return until(
            lambda: next((line for line in self.lines if line.get("event") == event), None),
            f"{self.role} to log {event!r}", within,
        )

    def started(self) -> "Process":
        """Wait until it has taken over its signals: one that comes sooner ends it as it would end any program."""
        until(lambda: self.popen.poll() is not None or any("metrics_port" in line for line in self.lines),
              f"{self.role} started: {self.raw[-5:]}")
        return self

    def stop(self, how: int = signal.SIGTERM) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(how)
        return self.ended()

    def ended(self) -> int:
        """Wait until it has ended and return its exit code."""
        code = self.popen.wait(DEADLINE)
        self._reader.join(DEADLINE)
        if self.popen.stderr:
            self.popen.stderr.close()
        return code

    def kill(self) -> None:
        self.stop(signal.SIGKILL)


def held_too_long(processes: Sequence[Process]) -> bool:
    """Whether a process was frozen for so long that its claim was rolled back: its events may be emitted twice."""
    return any(line.get("event", "").startswith(("claim rolled back", "RabbitMQ unavailable"))
               for process in processes for line in process.lines)


def may_have_let_go(producer: Process) -> bool:
    """Whether a producer may have been frozen while it decided, and released the rest of its batch."""
    return held_too_long([producer]) or producer.metric("scheduler_loop_seconds_sum") > DECIDE_SECONDS


class Sidecar:
    """Consumers and producers on one database and one virtual host."""

    def __init__(self, database_url: str, amqp_url: str) -> None:
        self.database_url = database_url
        self.amqp_url = amqp_url
        self.env = {"DATABASE_URL": database_url, "AMQP_URL": amqp_url}
        self.processes: list[Process] = []

    def start(self, role: str, *arguments: str, **env: str) -> Process:
        process = Process(role, self.env | env, *arguments)
        self.processes.append(process)
        return process

    def up(self, consumers: int = 1, producers: int = 1, **env: str) -> "Sidecar":
        """Start so many of each and wait until all are ready."""
        started = [self.start("consumer", **env) for _ in range(consumers)]
        started += [self.start("producer", **env) for _ in range(producers)]
        for process in started:
            process.ready()
        return self

    def sql(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Run a statement and return its rows as dictionaries."""
        options = "-c search_path=scheduler,public"
        with connected(self.database_url, options=options) as connection, connection.cursor(
            cursor_factory=psycopg2.extras.RealDictCursor
        ) as cursor:
            cursor.execute(statement, values or None)
            return [dict(row) for row in cursor.fetchall()] if cursor.description else []

    def job(self, job_id: str) -> dict[str, Any] | None:
        rows = self.sql("SELECT * FROM jobs WHERE id = %s", job_id)
        return rows[0] if rows else None

    def stored(self, job_id: str, status: str | None = None) -> dict[str, Any]:
        """Wait until the job is in the table, with that status if one is given."""
        def there() -> dict[str, Any] | None:
            row = self.job(job_id)
            return row if row and status in (None, row["status"]) else None

        return until(there, f"job {job_id} stored as {status or 'anything'}")

    def close(self) -> list[int]:
        codes = []
        for process in self.processes:
            if process.popen.poll() is None:
                process.popen.send_signal(signal.SIGCONT)
                process.started().popen.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                codes.append(process.ended())  # a second signal would end it at once
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return codes


@contextmanager
def unreachable(url: str) -> Iterator[None]:
    """Keep all clients out of this database during the block; open sessions are terminated."""
    name = urlsplit(url).path.lstrip("/")
    with connected(urlsplit(url)._replace(path="/postgres").geturl()) as connection, connection.cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        try:
            yield
        finally:
            cursor.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


@contextmanager
def connected(url: str, **options: str) -> Iterator[Any]:
    connection = psycopg2.connect(url, **options)
    connection.autocommit = True
    try:
        yield connection
    finally:
        connection.close()
