"""The JSON lines between a worker and its supervisor, and the tail of a command's output."""

import base64
import json
import os
from typing import Any

READ_BYTES = 64 * 1024
KEPT_BYTES = 64 * 1024  # at the end of each stream; a result holds no more
_NEWLINE = b"\n"


class OutputTail:
    """The tail of a stream, and the stream's descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self.changed = False
        self._tail = bytearray()

    def read(self) -> None:
        """Read the available data; close the stream at its end."""
        assert self.descriptor is not None  # noqa: S101 - only open streams are polled
        try:
            more = os.read(self.descriptor, READ_BYTES)
        except BlockingIOError:
            return
        self.changed = True
        self._tail += more
        del self._tail[:-KEPT_BYTES]
        if not more:
            self.close()

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def text(self) -> str:
        return base64.b64encode(self._tail).decode()


class OrderLines:
    """Reads the worker's orders."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.closed = False
        self._buffer = bytearray()

    def read(self) -> list[dict[str, Any]]:
        """Wait for data and return the complete orders."""
        more = os.read(self.descriptor, READ_BYTES)
        self.closed = not more
        self._buffer += more
        *lines, self._buffer = self._buffer.split(_NEWLINE)
        return [json.loads(line) for line in lines]


class ReportWriter:
    """Writes reports to the worker without blocking: a frozen worker must not stop its supervisor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pending = b""
        os.set_blocking(descriptor, False)

    def write(self, report: dict[str, Any]) -> None:
        self.pending += json.dumps(report).encode() + _NEWLINE
        self.send()

    def send(self) -> None:
        """Write as much as the pipe accepts."""
        try:
            while self.pending:
                self.pending = self.pending[os.write(self.descriptor, self.pending):]
        except BlockingIOError:
            return
        except OSError:  # the worker is gone
            self.pending = b""

    def flush(self) -> None:
        """Write everything, blocking: there is nothing left to supervise."""
        os.set_blocking(self.descriptor, True)
        self.send()
