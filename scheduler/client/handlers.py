"""What the host does when a reminder is due: one function for each job type."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from scheduler.domain.messages import DueRun

P = TypeVar("P")


class Due(BaseModel, Generic[P]):
    """A ScheduleDue with its payload as the host's own type; a field of a newer sidecar does no harm."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    event_id: UUID
    job_id: UUID
    job_type: str
    payload: P
    due_at: datetime
    emitted_at: datetime
    occurrence: int
    missed: int
    next_run_at: datetime | None
    tenant: str | None = None
    target: dict[str, Any] | None = None
    run: DueRun | None = None


Handle = Callable[[Due[Any]], object]


@dataclass(frozen=True, slots=True)
class Handler:
    """A function, and the model its events are read with."""

    handle: Handle
    model: type[Due[Any]]


class UnknownJobType(Exception):  # noqa: N818 - a state of the deployment, not an accident
    """No handler is registered for the event's job type."""


class UnreadableEvent(Exception):  # noqa: N818 - as above
    """The event, or its payload, does not fit the handler's model, and never will."""


class Handlers:
    """The handlers of a host, by job type."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def on_due(self, job_type: str, payload: Any = dict[str, Any]) -> Callable[[Handle], Handle]:
        """Register the decorated function for a job type; `payload` is the type its payload is read as."""

        def register(handle: Handle) -> Handle:
            if job_type in self._handlers:
                raise ValueError(f"{job_type!r} has a handler already")
            self._handlers[job_type] = Handler(handle, Due[payload])
            return handle

        return register

    def __iter__(self) -> Iterator[tuple[str, Handler]]:
        """Yield each job type with its handler, in the order of the alphabet."""
        return iter(sorted(self._handlers.items()))

    def add(self, job_type: str, handler: Handler) -> None:
        """Serve a handler of another set as well."""
        if self._handlers.setdefault(job_type, handler) is not handler:
            raise ValueError(f"{job_type!r} has a handler already")

    def dispatch(self, body: bytes) -> object:
        """Read an event, have it handled and return what comes of it; whatever is raised means it was not."""
        try:
            job_type = _JobType.model_validate_json(body).job_type
            handler = self._handlers.get(job_type)
            if handler is None:
                raise UnknownJobType(f"no handler for {job_type!r}; there are {sorted(self._handlers)}")
            event = handler.model.model_validate_json(body)
        except ValidationError as error:
            raise UnreadableEvent(str(error)) from error
        return handler.handle(event)


class _JobType(BaseModel):
    job_type: str


# Hosts with one set of handlers use these two; others make Handlers of their own.
handlers = Handlers()
on_due = handlers.on_due
