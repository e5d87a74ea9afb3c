"""Shared parts of the benchmarks: fresh databases and virtual hosts, bulk-loaded jobs, real processes."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import psycopg2

from scheduler.dev.servers import Stack
from scheduler.postgres.migrate import migrate
from scheduler.rabbit import topology

ROOT = Path(__file__).parent.parent
PAYLOAD = {"invoice": 42, "customer": "c-1029", "note": "x" * 150}


class Bed:
    """A separate database and virtual host."""

    def __init__(self, stack: Stack, due_queue_type: str = "quorum", amqp_url: str | None = None) -> None:
        """Create them, or use the given broker."""
        self._stack = stack
        self._given = amqp_url is not None
        self.database_url = stack.create_database()
        self.amqp_url = amqp_url or stack.create_vhost()
        migrate(self.database_url)
        topology.declare(self.amqp_url, queue_type="quorum", due_queue_type=due_queue_type)

    def close(self) -> None:
        self._stack.drop_database(self.database_url)
        if not self._given:
            self._stack.delete_vhost(self.amqp_url)

    def __enter__(self) -> "Bed":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sql(self, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
        connection = psycopg2.connect(self.database_url)
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, values)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def fill(self, count: int, when: str = "now() - interval '1 second'", **columns: str) -> None:
        """Insert jobs; values are SQL expressions of the row number n."""
        columns = {"id": "gen_random_uuid()", "job_type": "'bench.job'", "payload": f"'{json.dumps(PAYLOAD)}'",
                   "next_run_at": when, "starts_at": when} | columns
        self.sql(f"INSERT INTO jobs ({', '.join(columns)}) SELECT {', '.join(columns.values())} "
                 f"FROM generate_series(1, {count}) AS n")

    def analyze(self) -> None:
        """Vacuum and checkpoint: pending writes of a bulk load must not affect the measurement."""
        self.sql("VACUUM ANALYZE jobs")
        self.sql("CHECKPOINT")
        os.sync()  # a confirm waits for the disk, including pending writes of others

    def depth(self, queue: str) -> int:
        connection = pika.BlockingConnection(pika.URLParameters(self.amqp_url))
        try:
            declared = connection.channel().queue_declare(queue, passive=True)
            return declared.method.message_count
        finally:
            connection.close()

    def purge(self, queue: str) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self.amqp_url))
        connection.channel().queue_purge(queue)
        connection.close()

    @contextmanager
    def process(self, *arguments: str, wait: bool = True, **env: str) -> Iterator["Running"]:
        """Run one of our processes until the block ends."""
        running = Running([sys.executable, "-m", *arguments], self, env)
        try:
            if wait:
                running.ready()
            yield running
        finally:
            running.stop()


class Running:
    """One of our running processes."""

    def __init__(self, command: list[str], bed: Bed, env: dict[str, str]) -> None:
        self.popen = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env=os.environ | {"DATABASE_URL": bed.database_url, "AMQP_URL": bed.amqp_url, "METRICS_PORT": "0",
                              "METRICS_HOST": "127.0.0.1"} | env,
        )
        self.port = 0

    def ready(self) -> None:
        assert self.popen.stderr
        for line in self.popen.stderr:
            if "metrics_port" in line:
                self.port = json.loads(line)["metrics_port"]
                break
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz").close()
            except OSError:
                if self.popen.poll() is not None:
                    raise RuntimeError(f"{self.popen.args} ended with {self.popen.returncode}") from None
                time.sleep(0.02)
            else:
                return

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return answer.read().decode()

    def stop(self) -> None:
        self.popen.terminate()
        try:
            self.popen.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.communicate()


Meter = Callable[[list[Running]], None]


def no_meter(_: list[Running]) -> None:
    """Measure nothing."""


def finished_in(bed: Bed, condition: str, started: float, limit: float = 300.0) -> float:
    """Return the seconds from `started` until the SQL condition holds."""
    connection = psycopg2.connect(bed.database_url)
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            while time.monotonic() - started < limit:
                cursor.execute(f"SELECT {condition}")
                if cursor.fetchone()[0]:  # type: ignore[index]
                    return time.monotonic() - started
                time.sleep(0.01)
    finally:
        connection.close()
    raise TimeoutError(condition)


def insert(bed: Bed, table: str, columns: Mapping[str, str], count: int) -> None:
    """Insert rows in two concurrent sessions; values are SQL expressions of the row number n."""
    rows = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM "
    half = count // 2
    with ThreadPoolExecutor(2) as sessions:
        list(sessions.map(lambda part: bed.sql(f"{rows} generate_series({part[0]}, {part[1]}) AS n"),
                          [(1, half), (half + 1, count)]))


@contextmanager
def without_indexes(bed: Bed, table: str) -> Iterator[None]:
    """Drop the table's indexes and recreate them after loading, which is faster."""
    of_table = "FROM pg_index LEFT JOIN pg_constraint ON conindid = indexrelid WHERE indrelid = %s::regclass AND conname IS"
    keys = bed.sql(f"SELECT conname, pg_get_constraintdef(pg_constraint.oid) {of_table} NOT NULL", (table,))
    others = bed.sql(f"SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) {of_table} NULL", (table,))
    for name, _ in keys:
        bed.sql(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    for name, _ in others:
        bed.sql(f"DROP INDEX {name}")
    yield
    for name, definition in keys:
        bed.sql(f"SET maintenance_work_mem = '512MB'; ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
    with ThreadPoolExecutor(2) as sessions:
        list(sessions.map(lambda process: bed.sql(f"SET maintenance_work_mem = '512MB'; {process[1].replace(' ON ONLY ', ' ON ')}"),
                          others))
