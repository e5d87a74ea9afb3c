"""The moment a command was issued: what decides between two commands for one job."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class IssuingClock:
    """Gives every command of this process a later microsecond than the one before, whatever the clock does."""

    def __init__(self, nanoseconds: Callable[[], int] = time.time_ns) -> None:
        self._nanoseconds = nanoseconds
        self._lock = threading.Lock()
        self._last = 0

    def __call__(self) -> datetime:
        """Return now, or a microsecond after the last answer if that is later."""
        with self._lock:
            self._last = max(self._last + 1, self._nanoseconds() // 1000)
            return _EPOCH + timedelta(microseconds=self._last)


# One for the process: two clients in it must not disagree about which command came last.
issued_now = IssuingClock()
