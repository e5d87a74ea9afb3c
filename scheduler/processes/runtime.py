"""What every long-running process needs: a stop that signals set, waits that it ends, backoff, and exit codes."""

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from scheduler.ops import interruptible_connect
from scheduler.ops.logs import get_logger

log = get_logger(__name__)
EX_UNAVAILABLE = 69  # a server cannot be reached
EX_CONFIG = 78  # a setting is wrong
GRACE_SECONDS = 4.5  # the contract says 5


class Stop:
    """Set by SIGTERM or SIGINT: finish what is in flight, then leave. A second signal leaves at once."""

    def __init__(self, late_exit_code: int = 0) -> None:
        self._event = threading.Event()
        self._wakers: list[int] = []
        self._late_exit_code = late_exit_code
        self._signals: tuple[socket.socket, socket.socket] | None = None
        self._busy: list[Callable[[], bool]] = []

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep, but no longer than until the stop; return whether it has come."""
        return self._event.wait(seconds)

    @contextmanager
    def wakes(self, pipe: int) -> Iterator[None]:
        """Meanwhile have the stop write a byte to `pipe`, for a loop that waits on file descriptors."""
        self._wakers.append(pipe)
        try:
            yield
        finally:
            self._wakers.remove(pipe)

    def set(self) -> None:
        self._event.set()
        for pipe in list(self._wakers):
            with suppress(OSError):  # closed just now, or full: then it is awake anyway
                os.write(pipe, b"x")

    def wait_for(self, busy: Callable[[], bool]) -> None:
        """Have the last deadline wait while this is true: whoever asks for it has a limit of its own."""
        self._busy.append(busy)

    def listen(self) -> None:
        """Take over SIGTERM and SIGINT.

        A handler in Python runs on the main thread, and only once that is back from the database driver:
        while it waits for an answer that never comes, never. So the byte that the interpreter itself writes
        for each signal wakes a thread of its own.
        """
        reader, writer = self._signals = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._heed, args=(reader,), name="signals", daemon=True).start()

    def _heed(self, reader: socket.socket) -> None:
        while numbers := reader.recv(16):
            for number in numbers:
                self._on_signal(number)

    def _on_signal(self, number: int) -> None:
        if number not in (signal.SIGTERM, signal.SIGINT):
            return
        if self:
            os._exit(128 + number)
        # Whatever hangs, the process is gone in time; what it had not settled is rolled back and redone.
        deadline = threading.Timer(GRACE_SECONDS, self._leave)
        deadline.daemon = True
        deadline.start()
        self.set()
        interruptible_connect.abandon_connects()

    def _leave(self) -> None:
        while any(busy() for busy in self._busy):
            time.sleep(GRACE_SECONDS)
        os._exit(self._late_exit_code)


def backoff(first: float = 0.1, most: float = 10.0) -> Iterator[float]:
    """Yield jittered delays that double up to `most`, for ever."""
    delay = first
    while True:
        yield delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        delay = min(delay * 2, most)
