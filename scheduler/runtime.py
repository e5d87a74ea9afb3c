"""What every long-running process needs: a stop that signals set, waits that it ends, and backoff."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from scheduler.ops.logs import get_logger

log = get_logger(__name__)
GRACE_SECONDS = 4.5  # the contract says 5


class Stop:
    """Set by SIGTERM or SIGINT: finish what is in flight, then leave. A second signal leaves at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._wakers: list[int] = []

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
        for pipe in self._wakers:
            os.write(pipe, b"x")

    def listen(self) -> None:
        """Take over SIGTERM and SIGINT."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self:
            os._exit(128 + number)
        # Whatever hangs, the process is gone in time; what it had not settled is rolled back and redone.
        deadline = threading.Timer(GRACE_SECONDS, lambda: os._exit(0))
        deadline.daemon = True
        deadline.start()
        self.set()


def backoff(first: float = 0.1, most: float = 10.0) -> Iterator[float]:
    """Yield jittered delays that double up to `most`, for ever."""
    delay = first
    while True:
        yield delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
        delay = min(delay * 2, most)
