"""The table of the long-running processes and their properties."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from scheduler.domain.errors import Misconfigured
from scheduler.domain.targets.target import TARGETS


@dataclass(frozen=True, slots=True)
class ProcessRole:
    """A process that runs until it is stopped."""

    name: str
    help: str
    # Module and class of each of its tasks. Each has its own connection to RabbitMQ and is imported on demand.
    works: tuple[str | Callable[..., Any], ...]
    in_dev: int  # number of such processes in `scheduler dev`
    # Python's thread switch interval. A producer's threads wait for Postgres several times per batch, and then up
    # to this long for the interpreter lock; the default, 5 ms, is too long. A consumer's threads are always busy
    # while its queue is long, and switching costs time.
    switch_seconds: float
    # Without work it does not query the database: its heartbeat detects whether the database is available.
    idle_without_database: bool = False
    database: bool = True  # a worker has none
    broker: bool = True  # the API works without one
    declares: bool = True  # a worker only checks the topology, which its broker user may not change
    # Module and class of an object that its tasks share, created once from the settings.
    common: str | None = None
    extra: str = "server"  # the extra that it needs
    notifies: bool = False  # one replica of these calls SCHEDULER_NOTIFY_WEBHOOK

    def load(self, settings: Any) -> list[Any]:
        """Import its tasks. A class with `each` is expanded to several, depending on the settings."""
        try:
            classes = [_import_object(work) for work in self.works]
        except ModuleNotFoundError as error:
            raise missing_extra(f"scheduler {self.name}", self.extra, error) from None
        return [work for cls in classes for work in (cls.each(settings) if hasattr(cls, "each") else (cls,))]

    def notifier(self, settings: Any) -> Any:
        """Import the class that calls SCHEDULER_NOTIFY_WEBHOOK; None if this process does not."""
        if not self.notifies or settings.notify_webhook is None:
            return None
        try:
            return _import_object("scheduler.notifying.notifier:Notifier")
        except ModuleNotFoundError as error:
            raise missing_extra("SCHEDULER_NOTIFY_WEBHOOK", "worker", error) from None

    def shared(self, settings: Any) -> tuple[Any, ...]:
        """Create the object that its tasks share, if any."""
        return () if self.common is None else (_import_object(self.common)(settings),)


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'scheduler-sidecar[{extra}]'"


def missing_extra(command: str, extra: str, error: ModuleNotFoundError) -> Misconfigured:
    """Return the error for a command whose extra is not installed; raises `error` if the module is our own."""
    if (error.name or "scheduler").partition(".")[0] == "scheduler":
        raise error
    return Misconfigured(f"{command} needs {error.name}, which is not installed: {how_to_install(extra)}")


def _import_object(path: str | Callable[..., Any]) -> Any:
    if not isinstance(path, str):
        return path
    module, name = path.split(":")
    return getattr(import_module(module), name)


# By kind of target: its worker.
WORKERS = {kind: f"scheduler.workers.{kind}.service:{kind.capitalize()}Worker" for kind in TARGETS}
ROLES = {role.name: role for role in (
    ProcessRole("consumer", "Store commands: AMQP → Postgres.",
         ("scheduler.processes.consumer:Consumer", "scheduler.processes.results_consumer:ResultsConsumer",
          "scheduler.processes.delay_consumer:DelayConsumer"),
         in_dev=1, switch_seconds=0.002, idle_without_database=True, notifies=True),
    ProcessRole("producer", "Publish due events: Postgres → AMQP.",
         ("scheduler.processes.producer:Producer", "scheduler.processes.replanner:Replanner"),
         in_dev=2, switch_seconds=0.0005, notifies=True),
    ProcessRole("worker", "Execute jobs: webhooks, commands and handlers.",
         ("scheduler.workers.heartbeat:WorkerHeartbeat", *WORKERS.values()),
         in_dev=1, switch_seconds=0.002, database=False, declares=False,
         common="scheduler.workers.worker:Worker", extra="worker"),
    ProcessRole("api", "The REST API and the web console.", ("scheduler.api.server:ApiServer",),
         in_dev=1, switch_seconds=0.001, idle_without_database=True, broker=False, extra="api"),
)}
