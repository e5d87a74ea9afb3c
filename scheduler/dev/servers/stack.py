"""A Postgres and a RabbitMQ for development and tests, from any source."""

import atexit
import secrets
from collections.abc import Callable
from types import TracebackType
from typing import Self

from scheduler.dev.servers import databases, vhosts, watchdog
from scheduler.dev.servers.ledger import Ledger
from scheduler.dev.servers.postgres import PostgresServer
from scheduler.dev.servers.rabbitmq import RabbitServer


class Stack:
    """The servers, and databases and vhosts on them; closing it leaves nothing behind."""

    database_url: str
    amqp_url: str
    postgres: PostgresServer | None = None
    rabbitmq: RabbitServer | None = None

    def __init__(self, ledger: Ledger) -> None:
        self.directory = ledger.directory
        self.ledger = ledger
        self.vhosts: vhosts.Vhosts | None = None
        self._also: list[Callable[[], None]] = []
        self._watchdog = watchdog.start(ledger.directory)
        atexit.register(self.close)

    def __enter__(self) -> Self:
        """Return the stack."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stack."""
        self.close()

    def create_database(self, name: str | None = None, template: str | None = None) -> str:
        """Create a database, a copy of `template` if given, and return its URL."""
        return databases.create(self.database_url, name or _unique(), template)

    def drop_database(self, url: str) -> None:
        """Drop a database even while it is in use."""
        databases.drop(self.database_url, databases.name_of(url))

    def create_vhost(self, name: str | None = None) -> str:
        """Create a vhost with all permissions and return its AMQP URL."""
        return self._broker().create(name or _unique())

    def delete_vhost(self, url: str) -> None:
        """Delete a vhost with its contents."""
        self._broker().delete(vhosts.name_of(url))

    def adopt(self, pid: int) -> None:
        """End a process (SIGTERM, then SIGKILL) when the stack ends for any reason."""
        self.ledger.adopt(pid)

    def also_close(self, stop: Callable[[], None]) -> None:
        """Call `stop` when the stack closes."""
        self._also.append(stop)

    def close(self) -> None:
        """Stop every server and remove the directory; closing twice is harmless."""
        if not self.ledger.owned():
            return  # a forked child: the servers are its parent's
        atexit.unregister(self.close)
        try:
            while self._also:
                self._also.pop()()
        finally:
            self.ledger.close()
            watchdog.stop(self._watchdog)

    def _broker(self) -> vhosts.Vhosts:
        if self.vhosts is None:
            self.vhosts = vhosts.ManagedVhosts(self.amqp_url)
        return self.vhosts


def _unique() -> str:
    return f"scheduler_{secrets.token_hex(6)}"
