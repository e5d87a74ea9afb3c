"""The one table of the long-running processes: what each is for, and what sets it apart from the others."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from scheduler.domain.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Role:
    """A process that serves until it is stopped."""

    name: str
    help: str
    # Module and class of what it does, each on a connection of its own to RabbitMQ; imported only where it runs.
    works: tuple[str, ...]
    in_dev: int  # how many of them `scheduler dev` runs
    # Threads share the interpreter: one talks to RabbitMQ, another waits for Postgres many times a batch, and when
    # its answer is there should not wait 5 ms more to be let in, which is Python's default. A consumer's are busy
    # all the time while its queue is long, and each change costs.
    switch_seconds: float
    # Without work it does not touch the database: then its heartbeat is how it knows that it is there.
    idle_without_database: bool
    # Whether each of its works is done on a connection to RabbitMQ; else it works while RabbitMQ is away.
    broker: bool = True
    extra: str | None = None  # what has to be installed for it

    def load(self) -> list[Any]:
        """Import what it does."""
        pairs = (each.split(":") for each in self.works)
        try:
            return [getattr(import_module(module), name) for module, name in pairs]
        except ModuleNotFoundError as error:
            if self.extra is None or str(error.name).startswith("scheduler"):
                raise
            raise Misconfigured(f"scheduler {self.name} needs {error.name}, which is not installed: "
                                f"pip install 'scheduler[{self.extra}]'") from None


ROLES = {role.name: role for role in (
    Role("consumer", "AMQP → Postgres: commands become rows.",
         ("scheduler.consumer:Consumer", "scheduler.consumer:ResultsConsumer"),
         in_dev=1, switch_seconds=0.002, idle_without_database=True),
    Role("producer", "Postgres → AMQP: due rows become events.", ("scheduler.producer:Producer",),
         in_dev=2, switch_seconds=0.0005, idle_without_database=False),
    Role("api", "The REST API and the web console.", ("scheduler.api.server:ApiServer",),
         in_dev=0, switch_seconds=0.001, idle_without_database=True, broker=False, extra="api"),
)}
