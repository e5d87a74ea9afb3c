"""Signal handlers of a Runner's process."""

import os
import signal
import threading
from collections.abc import Callable


def stop_on_signal(stop: Callable[[], None], seconds: float) -> None:
    """Call `stop` at the first signal; exit at the second, or `seconds` after the first."""
    stopping = threading.Event()

    def on_signal(number: int, _: object) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()
        # Exit in time even if a handler or the broker hangs.
        last = threading.Timer(seconds, os._exit, (0,))
        last.daemon = True
        last.start()
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
