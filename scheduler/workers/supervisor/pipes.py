"""The lines of JSON between a worker and its supervisor, and the end of what a command writes."""

import base64
import json
import os
from typing import Any

READ_BYTES = 64 * 1024
KEPT_BYTES = 64 * 1024  # of each stream, the last: no more than this fits into a result anyway
_ENDS = b"\n"


class OutputTail:
    """The end of a stream, and the descriptor it comes from."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self.changed = False
        self._kept = bytearray()

    def read(self) -> None:
        """Take what is there; at its end close it."""
        assert self.descriptor is not None  # noqa: S101 - only an open one is polled
        try:
            more = os.read(self.descriptor, READ_BYTES)
        except BlockingIOError:
            return
        self.changed = True
        self._kept += more
        del self._kept[:-KEPT_BYTES]
        if not more:
            self.close()

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def text(self) -> str:
        return base64.b64encode(self._kept).decode()


class OrderLines:
    """The orders, line by line."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.over = False
        self._part = bytearray()

    def take(self) -> list[dict[str, Any]]:
        """Wait for the next piece and return the orders that are whole by now."""
        more = os.read(self.descriptor, READ_BYTES)
        self.over = not more
        self._part += more
        *lines, self._part = self._part.split(_ENDS)
        return [json.loads(line) for line in lines]


class ReportWriter:
    """What the worker is told. One that stands still reads no more, and must not hold up its own supervisor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.waiting = b""
        os.set_blocking(descriptor, False)

    def say(self, report: dict[str, Any]) -> None:
        self.waiting += json.dumps(report).encode() + _ENDS
        self.send()

    def send(self) -> None:
        """Write as much as the pipe takes."""
        try:
            while self.waiting:
                self.waiting = self.waiting[os.write(self.descriptor, self.waiting):]
        except BlockingIOError:
            return
        except OSError:  # the worker is gone
            self.waiting = b""

    def flush(self) -> None:
        """Write all of it, however long that takes: nothing is left to be watched."""
        os.set_blocking(self.descriptor, True)
        self.send()
