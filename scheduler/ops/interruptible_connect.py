"""Connect to servers in a way that a stop can interrupt.

Neither libpq nor the C library can be interrupted while they resolve a name or connect. A separate thread
does that, and a stop abandons the thread: it has nothing in flight yet.
"""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Protocol, TypeVar

from scheduler.domain.errors import Unavailable


class Closable(Protocol):
    """A connection that can be closed."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)
_MAX_SECONDS = threading.TIMEOUT_MAX

_lock = threading.Lock()
_awaited: "set[Future[object]]" = set()
_threads: set[threading.Thread] = set()
_stopping = False


def connect_interruptibly(act: Callable[[], T]) -> T:
    """Return the result of `act`; raise Unavailable as soon as the process stops."""
    future: Future[T] = Future()
    thread = threading.Thread(target=_run, args=(act, future), name="connecting", daemon=True)
    with _lock:
        if _stopping:
            raise Unavailable("the process stops")
        _awaited.add(future)  # type: ignore[arg-type]  # any result type
        _threads.add(thread)
    thread.start()
    try:
        return future.result(_MAX_SECONDS)
    finally:
        with _lock:
            _awaited.discard(future)


def _run(act: Callable[[], T], future: "Future[T]") -> None:
    try:
        try:
            connection = act()
        except BaseException as error:  # noqa: BLE001 - the waiting caller raises it
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
            return
        try:
            future.set_result(connection)
        except InvalidStateError:  # the caller has stopped waiting
            connection.close()
    finally:
        with _lock:
            _threads.discard(threading.current_thread())


def abandon_connects() -> None:
    """Make all current and future calls of `reach` raise Unavailable."""
    global _stopping  # noqa: PLW0603 - a process stops once
    with _lock:
        _stopping = True
        awaited = list(_awaited)
    for future in awaited:
        with contextlib.suppress(InvalidStateError):  # it connected just now
            future.set_exception(Unavailable("the process stops"))


def has_abandoned_connects() -> bool:
    """Return whether a thread is still inside a driver: the interpreter must not be finalised around it."""
    with _lock:
        return _stopping and bool(_threads)
