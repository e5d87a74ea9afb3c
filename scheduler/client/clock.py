"""The clock for `issued_at`, which orders the commands for one job."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class IssuingClock:
    """Returns strictly increasing times, in microseconds, even if the system clock does not advance."""

    def __init__(self, nanoseconds: Callable[[], int] = time.time_ns) -> None:
        self._nanoseconds = nanoseconds
        self._lock = threading.Lock()
        self._last = 0

    def __call__(self) -> datetime:
        """Return the current time, or a microsecond after the last returned time if that is later."""
        with self._lock:
            self._last = max(self._last + 1, self._nanoseconds() // 1000)
            return _EPOCH + timedelta(microseconds=self._last)


# One per process, so that the commands of all its clients have one order.
issued_now = IssuingClock()
