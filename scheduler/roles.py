"""The one table of the long-running processes: what each is for, and what sets it apart from the others."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


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

    def load(self, settings: Any) -> list[Any]:
        """Import what it does; some of that is done once for each of several things that the settings name."""
        pairs = (each.split(":") for each in self.works)
        found = [getattr(import_module(module), name) for module, name in pairs]
        return [work for each in found for work in (each.each(settings) if hasattr(each, "each") else (each,))]


ROLES = {role.name: role for role in (
    Role("consumer", "AMQP → Postgres: commands become rows.",
         ("scheduler.consumer:Consumer", "scheduler.consumer:ResultsConsumer", "scheduler.consumer:DelayConsumer"),
         in_dev=1, switch_seconds=0.002, idle_without_database=True),
    Role("producer", "Postgres → AMQP: due rows become events.", ("scheduler.producer:Producer",),
         in_dev=2, switch_seconds=0.0005, idle_without_database=False),
)}
