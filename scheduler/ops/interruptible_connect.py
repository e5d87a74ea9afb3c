"""Reaching a server takes as long as the name service and the network like: a process that is told to stop leaves.

Neither libpq nor the C library can be interrupted while they look up a name or dial. So that is done on a thread
of its own, and on a stop the thread is left behind: it has nothing in flight yet.
"""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Protocol, TypeVar

from scheduler.domain.errors import Unavailable


class Closable(Protocol):
    """What was reached."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)
_LONGEST_SECONDS = threading.TIMEOUT_MAX

_lock = threading.Lock()
_awaited: "set[Future[object]]" = set()
_threads: set[threading.Thread] = set()
_told_to_stop = False


def reach(act: Callable[[], T]) -> T:
    """Return what `act` returns; raise Unavailable as soon as the process is told to stop."""
    future: Future[T] = Future()
    thread = threading.Thread(target=_run, args=(act, future), name="reaching", daemon=True)
    with _lock:
        if _told_to_stop:
            raise Unavailable("the process stops")
        _awaited.add(future)  # type: ignore[arg-type]  # of whatever kind
        _threads.add(thread)
    thread.start()
    try:
        return future.result(_LONGEST_SECONDS)
    finally:
        with _lock:
            _awaited.discard(future)


def _run(act: Callable[[], T], future: "Future[T]") -> None:
    try:
        try:
            found = act()
        except BaseException as error:  # noqa: BLE001 - raised again by who waits for it, if anyone still does
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
            return
        try:
            future.set_result(found)
        except InvalidStateError:  # nobody waits any longer
            found.close()
    finally:
        with _lock:
            _threads.discard(threading.current_thread())


def give_up() -> None:
    """Have everyone who waits for a server go on without it, now and from now on."""
    global _told_to_stop  # noqa: PLW0603 - a process is told to stop once
    with _lock:
        _told_to_stop = True
        awaited = list(_awaited)
    for future in awaited:
        with contextlib.suppress(InvalidStateError):  # it was reached just now
            future.set_exception(Unavailable("the process stops"))


def left_behind() -> bool:
    """Tell whether a thread is still inside a driver: then the interpreter must not be taken down around it."""
    with _lock:
        return _told_to_stop and bool(_threads)
