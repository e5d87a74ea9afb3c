"""Stop signals, backoff and exit codes of long-running processes."""

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
EX_UNAVAILABLE = 69  # a server is unreachable
EX_CONFIG = 78  # a setting is invalid
GRACE_SECONDS = 4.5  # documented limit: 5 s


class Stop:
    """Set by SIGTERM or SIGINT: the process settles its work and exits. A second signal exits at once."""

    def __init__(self, late_exit_code: int = 0) -> None:
        self._event = threading.Event()
        self._wakers: list[int] = []
        self._late_exit_code = late_exit_code
        self._signals: tuple[socket.socket, socket.socket] | None = None
        self._busy: list[Callable[[], bool]] = []

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the stop, at most this long; return whether it is set."""
        return self._event.wait(seconds)

    @contextmanager
    def wakes(self, pipe: int) -> Iterator[None]:
        """Write a byte to `pipe` on a stop within this context, for a loop that waits on file descriptors."""
        self._wakers.append(pipe)
        try:
            yield
        finally:
            self._wakers.remove(pipe)

    def set(self) -> None:
        self._event.set()
        for pipe in list(self._wakers):
            with suppress(OSError):  # closed, or full and therefore readable
                os.write(pipe, b"x")

    def wait_for(self, busy: Callable[[], bool]) -> None:
        """Postpone the forced exit while `busy` returns True. The caller limits that time itself."""
        self._busy.append(busy)

    def listen(self) -> None:
        """Handle SIGTERM and SIGINT in a separate thread.

        A Python signal handler runs on the main thread, and not while that waits in the database driver. So the
        thread reads the bytes that the interpreter writes for each signal.
        """
        reader, writer = self._signals = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._read_signals, args=(reader,), name="signals", daemon=True).start()

    def _read_signals(self, reader: socket.socket) -> None:
        while numbers := reader.recv(16):
            for number in numbers:
                self._on_signal(number)

    def _on_signal(self, number: int) -> None:
        if number not in (signal.SIGTERM, signal.SIGINT):
            return
        if self:
            os._exit(128 + number)
        # The process exits in time even if it hangs; unsettled work is rolled back and redone.
        deadline = threading.Timer(GRACE_SECONDS, self._force_exit)
        deadline.daemon = True
        deadline.start()
        self.set()
        interruptible_connect.abandon_connects()

    def _force_exit(self) -> None:
        while any(busy() for busy in self._busy):
            time.sleep(GRACE_SECONDS)
        os._exit(self._late_exit_code)


def backoff(first: float = 0.1, most: float = 10.0) -> Iterator[float]:
    """Yield jittered delays that double up to `most`, indefinitely."""
    delay = first
    while True:
        yield delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        delay = min(delay * 2, most)
