"""Throttle repeated warnings: log the first in full, then a count every few seconds."""

import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from scheduler.ops.logs import Logger

EVERY_SECONDS = 10.0
_all: WeakSet["ThrottledWarning"] = WeakSet()


class ThrottledWarning:
    """One kind of warning. Suppressed warnings are counted, and logged at debug level."""

    def __init__(
        self,
        log: Logger,
        event: str,
        *,
        every: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._event = event
        self._every = every
        self._clock = clock
        self._lock = threading.Lock()
        self._quiet_until = -1.0
        self._held = 0
        self._fields: dict[str, Any] = {}
        _all.add(self)

    def warning(self, *, count: int = 1, **fields: Any) -> None:
        """Log the warning unless the same kind was logged recently."""
        with self._lock:
            self._fields = fields
            self._held += count
            logged = self._log_if_due()
        if not logged:
            self._log.debug(self._event, count=count, **fields)

    def flush(self) -> None:
        """Log suppressed warnings whose interval has passed."""
        with self._lock:
            self._log_if_due()

    def _log_if_due(self) -> bool:
        now = self._clock()
        if not self._held or now < self._quiet_until:
            return False
        self._log.warning(self._event, count=self._held, **self._fields)
        self._held = 0
        self._quiet_until = now + self._every
        return True


def flush_all() -> None:
    """Flush every warning of this process."""
    for warning in list(_all):
        warning.flush()
