"""Environment of one fault: a database, a virtual host, supervised processes and a host under load."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from chaos.account import Result, all_received, fill
from chaos.load import Host
from chaos.replicas import ROOT, Replica, Supervisor, wait_for
from scheduler.dev.servers import Stack
from scheduler.domain.errors import Unavailable
from scheduler.postgres.migrate import migrate
from scheduler.rabbit import topology


@contextmanager
def connected(database_url: str) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Yield a function that runs a statement and returns its rows."""
    with closing(psycopg2.connect(database_url, connect_timeout=10)) as connection:
        connection.autocommit = True

        def sql(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return cursor.fetchall() if cursor.description else []

        yield sql


class World:
    """The environment of a fault."""

    def __init__(
        self,
        stack: Stack,
        *,
        database_url: str | None = None,
        amqp_url: str | None = None,
        env: dict[str, str] | None = None,
        replica_env: Callable[[str, dict[str, str]], dict[str, str]] | None = None,
        consumers: int = 2,
        producers: int = 3,
        workers: int = 0,
        due_queue_type: str = "default",
        schema: Callable[[str], object] = migrate,
        code: Path = ROOT,
        host: Callable[..., Any] = Host,
        **load: Any,
    ) -> None:
        """Create the tables with `schema`, and start with the release in `code`."""
        self.stack = stack
        self._made = {"database": database_url is None, "vhost": amqp_url is None}
        self.database_url = database_url or stack.create_database()
        self.amqp_url = amqp_url or stack.create_vhost()
        schema(self.database_url)
        if code == ROOT:  # a different release declares its own topology
            self._declare(due_queue_type)
        common = {"DATABASE_URL": self.database_url, "AMQP_URL": self.amqp_url,
                  "SCHEDULER_DUE_QUEUE_TYPE": due_queue_type} | (env or {})
        names = [f"consumer-{n + 1}" for n in range(consumers)] + [f"producer-{n + 1}" for n in range(producers)]
        names += [f"worker-{n + 1}" for n in range(workers)]
        change = replica_env or (lambda _, given: given)
        self.supervisor = Supervisor([
            Replica(stack, name, name.partition("-")[0], change(name, dict(common)), code)
            for name in names
        ])
        self.host = host(self.amqp_url, **load)

    def _declare(self, due_queue_type: str) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                topology.declare(self.amqp_url.split(",")[0], queue_type="quorum", due_queue_type=due_queue_type)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return

    def start(self) -> None:
        self.supervisor.start()
        self.host.start()

    @property
    def consumers(self) -> list[Replica]:
        return self.supervisor.by_role("consumer")

    @property
    def producers(self) -> list[Replica]:
        return self.supervisor.by_role("producer")

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with connected(self.database_url) as run:
            return run(statement, *values)

    def settle(self, result: Result, within: float) -> None:
        """Wait until requested events are emitted and all processes are ready, and fill in the result."""
        self.host.stop_requesting()
        try:
            wait_for(lambda: not self.host.outstanding, "every command confirmed", within)
            wait_for(lambda: all_received(self.host.records, self.sql), "every event received", within)
        except TimeoutError as error:
            result.failures.append(str(error))
        try:
            wait_for(self.supervisor.all_ready, "every process ready", 120)
        except TimeoutError:
            result.recovered = False
            unready = {replica.name: replica.missing() for replica in self.supervisor.replicas if not replica.ready()}
            result.failures.append(f"not ready again: {unready}")
        time.sleep(1.0)  # an extra emission would arrive now
        fill(result, self.host.records, self.sql)
        result.failures += self.supervisor.crashes

    def close(self, result: Result | None = None) -> None:
        if result is not None and (sys.exc_info()[0] or not result.passed):
            for replica in self.supervisor.replicas:
                lines = replica.log.read_text(encoding="utf-8", errors="replace").splitlines()[-6:]
                print(f"--- {replica.name}", *(line[:600] for line in lines), sep="\n", flush=True)
        problems = self.supervisor.close()
        self.host.close()
        if result is not None:
            result.failures += problems
        if self._made["database"]:
            self.stack.drop_database(self.database_url)
        if self._made["vhost"]:
            self.stack.delete_vhost(self.amqp_url)
