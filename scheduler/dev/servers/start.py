"""Start a stack from the first available source: URLs, local programs, Docker, apt-get."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scheduler.dev.servers import apt, containers, vhosts
from scheduler.dev.servers.binaries import RabbitBinaries, find_postgres, find_rabbitmq
from scheduler.dev.servers.errors import ServersMissing
from scheduler.dev.servers.ledger import default_base, exclusive, open_ledger
from scheduler.dev.servers.postgres import PostgresServer
from scheduler.dev.servers.rabbitmq import RabbitServer
from scheduler.dev.servers.stack import Stack

_PACKAGES = {"PostgreSQL": "postgresql", "RabbitMQ": "rabbitmq-server"}


def _silent(_: str) -> None:
    """Print nothing."""


def start_stack(
    *,
    database_url: str | None = None,
    amqp_url: str | None = None,
    say: apt.Say = _silent,
    root: Path | None = None,
    purpose: str = "dev",
    fast: bool = False,
    postgres_settings: Mapping[str, str] | None = None,
    rabbitmq_config: Sequence[str] = (),
    rabbitmq_plugins: Sequence[str] = (),
) -> Stack:
    """Clean up after dead owners, then start a new stack and return when both servers respond."""
    base = root or default_base()
    sources = _Sources(database_url, amqp_url)
    sources.complete(base, say)
    stack = Stack(open_ledger(base, re.sub(r"\W+", "-", purpose)))

    def postgres() -> None:
        if sources.postgres:
            say("Starting a private PostgreSQL")
            server = PostgresServer(stack.ledger, sources.postgres, settings=postgres_settings, fast=fast)
            stack.postgres = server
            server.start()
            stack.database_url = server.url
        elif database_url:
            stack.database_url = database_url
        else:
            contained = containers.start_postgres(say)
            stack.also_close(contained.stop)
            stack.database_url = contained.url

    def rabbitmq() -> None:
        if sources.rabbitmq:
            say("Starting a private RabbitMQ (a few seconds)")
            node = RabbitServer(stack.ledger, sources.rabbitmq, config=rabbitmq_config, plugins=rabbitmq_plugins)
            stack.rabbitmq = node
            node.start()
            stack.amqp_url, stack.vhosts = node.url, vhosts.NodeVhosts(node)
        elif amqp_url:
            stack.amqp_url = amqp_url
        else:
            contained = containers.start_rabbitmq(say)
            stack.also_close(contained.stop)
            stack.amqp_url = contained.url
            stack.vhosts = vhosts.ManagedVhosts(contained.url, contained.management_url)

    try:
        _in_parallel(postgres, rabbitmq, stack.close)
    except BaseException:
        stack.close()
        raise
    return stack


def _in_parallel(first: Callable[[], None], second: Callable[[], None], cancel: Callable[[], None]) -> None:
    with ThreadPoolExecutor(max_workers=2) as pool:
        running = [pool.submit(first), pool.submit(second)]
        try:
            for future in running:
                future.result()
        except BaseException:
            # Stops the server that the other thread waits for, so that Ctrl-C need not wait for it.
            cancel()
            raise


class _Sources:
    """The source of each server: a URL, installed programs, or otherwise a container."""

    postgres: Path | None = None
    rabbitmq: RabbitBinaries | None = None

    def __init__(self, database_url: str | None, amqp_url: str | None) -> None:
        self._given = {"PostgreSQL": bool(database_url), "RabbitMQ": bool(amqp_url)}

    def complete(self, base: Path, say: apt.Say) -> None:
        """Find the programs or a container engine, or install the programs. Raises ServersMissing with advice."""
        if apt.is_leftover() and apt.can_install():
            with exclusive(_apt_lock(base)):
                apt.restore_policy()
        if not self._missing() or containers.engine_answers():
            return
        if not apt.can_install():
            raise ServersMissing(self._missing())
        with exclusive(_apt_lock(base)):
            # Another run may have installed them while we waited for the lock.
            if missing := self._missing():
                apt.install([_PACKAGES[name] for name in missing], say)
        if missing := self._missing():
            raise ServersMissing(missing)

    def _missing(self) -> list[str]:
        if not self._given["PostgreSQL"]:
            self.postgres = find_postgres()
        if not self._given["RabbitMQ"]:
            self.rabbitmq = find_rabbitmq()
        programs = {"PostgreSQL": self.postgres, "RabbitMQ": self.rabbitmq}
        return [name for name, given in self._given.items() if not given and programs[name] is None]


def _apt_lock(base: Path) -> Path:
    return base.with_name(f"{base.name}-installing")
