"""Handlers for due events: one function for each job type."""

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar, overload
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from scheduler.client.event_loop import EventLoop
from scheduler.domain.messages import DueRun

P = TypeVar("P")
_lock = threading.Lock()


class Due(BaseModel, Generic[P]):
    """A ScheduleDue with its payload as the host's type; ignores unknown fields from newer sidecars."""

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
    nominal_at: datetime | None = None  # if a calendar, a window or jitter moved the occurrence
    moved: list[str] | None = None
    tenant: str | None = None
    target: dict[str, Any] | None = None
    run: DueRun | None = None


class TrackedDue(Due[P], Generic[P]):
    """A ScheduleDue of a tracked job: it always has a run."""

    run: DueRun


Handle = Callable[[Due[Any]], object]
HandleTracked = Callable[[TrackedDue[Any]], object]
_H = TypeVar("_H", bound=Handle)
_T = TypeVar("_T", bound=HandleTracked)


@dataclass(frozen=True, slots=True)
class Handler:
    """A function, the model its events are read with, and how it is run."""

    handle: Handle
    model: type[Due[Any]]
    process: bool = False
    timeout: float | None = None  # seconds
    description: str | None = None


class UnknownJobType(Exception):  # noqa: N818 - a state of the deployment
    """No handler is registered for the event's job type."""


class UnreadableEvent(Exception):  # noqa: N818 - as above
    """The event or its payload does not match the handler's model."""


class Handlers:
    """The handlers of a host, by job type."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        with _lock:
            _sets.add(self)

    @overload
    def on_due(
        self, job_type: str, payload: Any = ..., *, tracked: Literal[False] = False, process: bool = False,
        timeout: timedelta | float | None = None, description: str | None = None,
    ) -> Callable[[_H], _H]: ...
    @overload
    def on_due(
        self, job_type: str, payload: Any = ..., *, tracked: Literal[True], process: bool = False,
        timeout: timedelta | float | None = None, description: str | None = None,
    ) -> Callable[[_T], _T]: ...
    def on_due(
        self, job_type: str, payload: Any = dict[str, Any], *, tracked: bool = False, process: bool = False,
        timeout: timedelta | float | None = None, description: str | None = None,
    ) -> Callable[[Any], Any]:
        """Register the decorated function for a job type; `payload` is the type its payload is read as.

        The function may be async. With `process=True` it runs in a child process. Both can be stopped, after
        `timeout` (seconds or a timedelta) and when the sidecar supersedes the attempt: an async function is
        cancelled, a process terminated. A function in a thread cannot be stopped, so it has no `timeout`.
        With `tracked=True` the function gets a TrackedDue, whose `run` is never None; an event without a run does
        not match. Workers announce the type with `description`, by default the first paragraph of the docstring.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if seconds is not None and not seconds > 0:
            raise ValueError(f"timeout must be more than 0 seconds, not {seconds:g}")

        def register(handle: Any) -> Any:
            _check(handle, process=process, timeout=seconds)
            if job_type in self._handlers:
                raise ValueError(f"{job_type!r} already has a handler")
            model = TrackedDue[payload] if tracked else Due[payload]
            self._handlers[job_type] = Handler(
                handle, model, process, seconds, description or _first_paragraph(handle))
            return handle

        return register

    def __iter__(self) -> Iterator[tuple[str, Handler]]:
        """Yield the job types with their handlers, sorted."""
        return iter(sorted(self._handlers.items()))

    def add(self, job_type: str, handler: Handler) -> None:
        """Add a handler from another set."""
        if self._handlers.setdefault(job_type, handler) is not handler:
            raise ValueError(f"{job_type!r} already has a handler")

    def read(self, body: bytes) -> tuple[Handler, Due[Any]]:
        """Return an event and its handler; raise UnknownJobType or UnreadableEvent."""
        try:
            job_type = _JobType.model_validate_json(body).job_type
            handler = self._handlers.get(job_type)
            if handler is None:
                raise UnknownJobType(f"no handler for {job_type!r}; the handlers are {sorted(self._handlers)}")
            return handler, handler.model.model_validate_json(body)
        except ValidationError as error:
            raise UnreadableEvent(str(error)) from error

    def dispatch(self, body: bytes) -> object:
        """Parse an event, run its handler in this process, sync or async, and return the result."""
        handler, event = self.read(body)
        returned = handler.handle(event)
        if not inspect.isawaitable(returned):
            return returned
        loop = EventLoop()
        try:
            return loop.run(returned, lambda _: None, handler.timeout)
        finally:
            loop.close()


def registered(job_type: str) -> list[Handler]:
    """Return the handlers for a job type in all sets of this process."""
    with _lock:
        sets = list(_sets)
    return [handler for handlers in sets for name, handler in handlers if name == job_type]


def function_name(handle: Handle) -> str:
    """Return the name of a handler's function within its module."""
    return str(getattr(_function(handle), "__qualname__", ""))


def module_name(handle: Handle) -> str:
    """Return the module that defines a handler's function."""
    return str(getattr(_function(handle), "__module__", ""))


def _first_paragraph(handle: Handle) -> str | None:
    text = inspect.getdoc(handle) if inspect.isroutine(handle) else None
    return " ".join((text or "").split("\n\n")[0].split()) or None


def _function(handle: Any) -> Any:
    """Return the function that a partial or a callable object calls."""
    while isinstance(handle, functools.partial):
        handle = handle.func
    return handle if inspect.isroutine(handle) or inspect.isclass(handle) else type(handle).__call__


def _check(handle: Handle, *, process: bool, timeout: float | None) -> None:
    """Raise TypeError for functions that cannot run with these options."""
    function = _function(handle)
    name = function_name(handle) or repr(handle)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{name} is a generator, whose body would never run: a handler must return, not yield")
    if process and ("<" in name or not module_name(handle)):
        raise TypeError(f"{name} cannot be found by a child process: process=True needs a function at the top "
                        "level of a module")
    if timeout is not None and not process and not inspect.iscoroutinefunction(function):
        raise TypeError(f"{name} runs in a thread, which cannot be stopped: timeout needs process=True or an "
                        "async function")


class _JobType(BaseModel):
    job_type: str


_sets: "weakref.WeakSet[Handlers]" = weakref.WeakSet()

# The default set of handlers, for hosts that need only one.
handlers = Handlers()
on_due = handlers.on_due
