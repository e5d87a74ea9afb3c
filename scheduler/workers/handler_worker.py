"""Run the `@on_due` handlers of Python modules in a worker process."""

import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from scheduler.client.errors import ClientError
from scheduler.client.handlers import Handler, Handlers
from scheduler.client.handlers import handlers as registered_handlers
from scheduler.client.runner import FLUSH_SECONDS, WORKERS, Runner
from scheduler.domain.errors import Misconfigured
from scheduler.domain.handler_catalogue import write_catalogue
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.processes.runtime import Stop
from scheduler.rabbit.address import user
from scheduler.rabbit.link import Link
from scheduler.settings import Settings
from scheduler.workers.handler_activity import HandlerActivity
from scheduler.workers.handler_catalogue import handler_offers
from scheduler.workers.worker import Worker

log = get_logger(__name__)
_POLL_SECONDS = 0.5
_RECONNECT_SECONDS = 5.0


def load_handlers(modules: Sequence[str]) -> Handlers:
    """Import the modules and return the handlers that they register. Raises Misconfigured."""
    if os.getcwd() not in sys.path:  # noqa: PTH109 - in the import system's own form
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as above
    served = Handlers()
    for name in modules:
        module = _import(name)
        own = [value for value in vars(module).values() if isinstance(value, Handlers)]
        for handlers in (registered_handlers, *own):
            _add_all(handlers, served, name)
    if not list(served):
        raise Misconfigured(f"--handlers {', '.join(modules)}: no handlers; decorate one with @on_due(…)")
    return served


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Misconfigured(f"--handlers {name}: module not found in {os.getcwd()} "  # noqa: PTH109 - as above
                                "or in the installed packages") from None
        raise Misconfigured(f"--handlers {name}: {error}") from error
    except Exception as error:
        raise Misconfigured(f"--handlers {name}: {type(error).__name__} during import: {error}") from error


def _add_all(handlers: Handlers, served: Handlers, module: str) -> None:
    for job_type, handler in handlers:
        try:
            served.add(job_type, handler)
        except ValueError as error:
            raise Misconfigured(f"--handlers {module}: {error}") from None


def describe_handlers(handlers: Handlers) -> Iterator[str]:
    """Yield the lines of `--list`: each job type with its function, payload and docstring."""
    for job_type, handler in handlers:
        function = handler.handle
        name = getattr(function, "__qualname__", type(function).__name__)
        yield f"{job_type}  {getattr(function, '__module__', '?')}.{name}"
        yield f"    payload: {_payload(handler)}"
        yield from (f"    {line}".rstrip() for line in (inspect.getdoc(function) or "").splitlines())


def _payload(handler: Handler) -> str:
    kind: Any = handler.model.model_fields["payload"].annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = ", ".join(
            f"{name}: {_type_name(field.annotation)}{'' if field.is_required() else ' = …'}"
            for name, field in kind.model_fields.items()
        )
        return f"{kind.__name__}({fields})"
    return _type_name(kind)


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)


class HandlerWorker:
    """Runs handlers with a Runner, which has its own connections and threads."""

    def __init__(
        self, settings: Settings, stop: Stop, health: HealthPart, worker: Worker, *, served: Handlers, queue: str
    ) -> None:
        self._stop = stop
        self._health = health
        self._grace = settings.stop_grace
        worker.offer(*(f"handler.{job_type}" for job_type, _ in served))
        worker.handlers = write_catalogue(handler_offers(served))
        worker.serve(WORKERS)
        self._activity = HandlerActivity(worker)
        queue_type = "classic" if settings.queue_type == "default" else settings.queue_type
        self._runner = Runner(
            ",".join(settings.amqp_urls), handlers=served, queue_name=queue, queue_type=queue_type,
            grace=self._grace, name=worker.name,
            user_id=user(settings.amqp_urls[0]) if settings.tenant_by == "user_id" else None,
            observer=self._activity,
        )
        self._stop_by = float("inf")
        self._thread = threading.Thread(target=self._serve, name="handlers", daemon=True)
        stop.wait_for(lambda: self._thread.is_alive() and time.monotonic() < self._stop_by)
        self._thread.start()

    def _serve(self) -> None:
        """Run the Runner; retry if the broker refuses the connection, as if it were unavailable."""
        while not self._stop:
            try:
                return self._runner.run()
            except ClientError as error:
                log.warning("handlers not connected; retrying", problem=str(error))
                self._stop.wait(_RECONNECT_SECONDS)
        return None

    def run(self, link: Link) -> None:
        """Report its health until the connection is lost or the process stops."""
        while not self._stop.wait(_POLL_SECONDS):
            link.check_open()
            self._health.turn()
            if self._runner.ready.is_set():
                self._health.found("rabbitmq")
            else:
                self._health.missing("rabbitmq", "the handlers are not connected yet")

    def finish(self) -> None:
        """Accept no more events, and wait for running handlers within the grace period."""
        self._stop_by = time.monotonic() + self._grace + FLUSH_SECONDS
        self._runner.stop()
        self._thread.join(self._grace + FLUSH_SECONDS)
        self._activity.abandon()


def worker_class(served: Handlers, queue: str) -> Callable[[Settings, Stop, HealthPart, Worker], HandlerWorker]:
    """Return a factory of HandlerWorkers for these handlers and this queue."""

    def make(settings: Settings, stop: Stop, health: HealthPart, worker: Worker) -> HandlerWorker:
        return HandlerWorker(settings, stop, health, worker, served=served, queue=queue)

    return make
