"""The one table of the long-running processes: what each is for, and what sets it apart from the others."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from scheduler import __version__
from scheduler.domain.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class ProcessRole:
    """A process that serves until it is stopped."""

    name: str
    help: str
    # Module and class of what it does, each on a connection of its own to RabbitMQ; imported only where it runs.
    works: tuple[str | Callable[..., Any], ...]
    in_dev: int  # how many of them `scheduler dev` runs
    # Threads share the interpreter: one talks to RabbitMQ, another waits for Postgres many times a batch, and when
    # its answer is there should not wait 5 ms more to be let in, which is Python's default. A consumer's are busy
    # all the time while its queue is long, and each change costs.
    switch_seconds: float
    # Without work it does not touch the database: then its heartbeat is how it knows that it is there.
    idle_without_database: bool = False
    database: bool = True  # a worker has none
    broker: bool = True  # the API works without one
    declares: bool = True  # a worker only checks the topology: its broker user may not change it
    # Module and class of what its works have in common, made once with the settings and given to each of them.
    common: str | None = None
    extra: str | None = None  # what has to be installed for it

    def load(self, settings: Any) -> list[Any]:
        """Import what it does; some of that is done once for each of several things that the settings name."""
        try:
            found = [_import_object(each) for each in self.works]
        except ModuleNotFoundError as error:
            if self.extra is None or str(error.name).startswith("scheduler"):
                raise
            raise Misconfigured(f"scheduler {self.name} needs {error.name}, which is not installed: "
                                f"{how_to_install(self.extra)}") from None
        return [work for each in found for work in (each.each(settings) if hasattr(each, "each") else (each,))]

    def shared(self, settings: Any) -> tuple[Any, ...]:
        """Make what its works have in common, if they have anything."""
        return () if self.common is None else (_import_object(self.common)(settings),)


def how_to_install(extra: str) -> str:
    """Say how to get an extra; not by the name alone, under which the public index has another's package."""
    return f"pip install 'scheduler-{__version__}-py3-none-any.whl[{extra}]', the wheel that `make build` makes"


def _import_object(path: str | Callable[..., Any]) -> Any:
    if not isinstance(path, str):
        return path
    module, name = path.split(":")
    return getattr(import_module(module), name)


ROLES = {role.name: role for role in (
    ProcessRole("consumer", "AMQP → Postgres: commands become rows.",
         ("scheduler.processes.consumer:Consumer", "scheduler.processes.consumer:ResultsConsumer",
          "scheduler.processes.consumer:DelayConsumer"),
         in_dev=1, switch_seconds=0.002, idle_without_database=True),
    ProcessRole("producer", "Postgres → AMQP: due rows become events.", ("scheduler.processes.producer:Producer",),
         in_dev=2, switch_seconds=0.0005),
    ProcessRole("worker", "AMQP → the work itself: calls webhooks, runs commands and handlers, reports results.",
         ("scheduler.workers.heartbeat:WorkerHeartbeat", "scheduler.workers.webhook.service:WebhookWorker",
          "scheduler.workers.command_worker:CommandWorker"),
         in_dev=1, switch_seconds=0.002, database=False, declares=False,
         common="scheduler.workers.worker:Worker", extra="worker"),
    ProcessRole("api", "The REST API and the web console.", ("scheduler.api.server:ApiServer",),
         in_dev=1, switch_seconds=0.001, idle_without_database=True, broker=False, extra="api"),
)}
