"""Start commands through supervisor processes, with one supervisor in reserve."""

import base64
import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scheduler
from scheduler.ops.logs import get_logger

log = get_logger(__name__)

# Without a heartbeat for this time, a supervisor treats its worker as frozen and ends the command. The sidecar's
# limit is longer, so the command has ended when another worker starts it.
LEASE_SECONDS = 12.0
# Isolated from the worker's environment; the standard library precedes our package.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from scheduler.workers.command.supervisor.supervision import main; main()"
)
_PERMANENT = (errno.E2BIG, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class CommandOrder:
    """A command to run, and its limits."""

    run: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    stdin: bytes
    timeout: float
    grace: float
    limits: Mapping[str, int]
    user: str | None = None
    argument_pattern: str | None = None
    arguments: tuple[str, ...] = ()  # the part of `run` that comes from the job

    def line(self) -> bytes:
        """Return the order as a line for the supervisor."""
        return json.dumps({
            "run": self.run, "directory": self.directory, "environment": dict(self.environment),
            "stdin": base64.b64encode(self.stdin).decode(), "timeout": self.timeout, "grace": self.grace,
            "limits": dict(self.limits), "user": self.user, "lease": LEASE_SECONDS,
            "argument_pattern": self.argument_pattern, "arguments": self.arguments,
        }).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a command, or the reason why it did not start."""

    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    ended_by: str | None = None  # `deadline`, `silence`, `abandoned`, or the reason that the worker gave
    left_behind: int = 0  # background processes that were ended after it
    survivors: int = 0  # background processes that could not be ended
    problem: str | None = None  # why it was not started
    permanent: bool = False  # a retry would not start it either


class RunningCommand:
    """A running command."""

    def __init__(self, process: "subprocess.Popen[bytes]", order: CommandOrder,
                 on_end: Callable[[CommandEnd], None]) -> None:
        """Start it; `on_end` is called once, on another thread."""
        self._process = process
        self._on_end = on_end
        self._sending = threading.Lock()
        self._pid: int | None = None
        self.newest = CommandEnd()  # its output so far
        self._send(order.line())
        threading.Thread(target=self._listen, name="command", daemon=True).start()

    def beat(self) -> None:
        """Send a heartbeat, and request the newest output."""
        self._send(b'{"beat":1}\n')

    def end(self, reason: str, grace: float | None = None) -> None:
        """End it: SIGTERM, then SIGKILL after its grace period."""
        order = {"end": reason} if grace is None else {"end": reason, "grace": grace}
        self._send(json.dumps(order).encode() + b"\n")

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        with self._sending, contextlib.suppress(OSError, ValueError):  # it has ended; _listen reports that
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        end = None
        with self._process.stdout as reports:
            for line in reports:
                report = json.loads(line)
                if "started" in report:
                    self._pid = report["started"]
                elif "problem" in report:
                    end = CommandEnd(problem=report["problem"], permanent=report["errno"] in _PERMANENT)
                else:
                    self.newest = _parse_report(report)
                    end = self.newest if "ended_by" in report else None
        if end is None:
            end = self._kill_orphans()
        with self._sending, contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]  # a pipe
        self._process.wait()
        self._on_end(end)

    def _kill_orphans(self) -> CommandEnd:
        """Kill the process group after its supervisor was killed; the kernel has killed only the direct child."""
        if self._pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
        return CommandEnd(problem="its supervisor was killed")


def _parse_report(report: dict[str, Any]) -> CommandEnd:
    return CommandEnd(
        report.get("exit_code"), report.get("signal"), base64.b64decode(report["stdout"]),
        base64.b64decode(report["stderr"]), report["seconds"], report.get("ended_by"),
        report.get("left_behind", 0), report.get("survivors", 0),
    )


class Supervisors:
    """Starts commands. A spare supervisor is always running, so that a start takes only a fork."""

    def __init__(self) -> None:
        self._spare: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._refill()

    def start(self, order: CommandOrder, on_end: Callable[[CommandEnd], None]) -> RunningCommand:
        """Start a command."""
        with self._lock:
            spare, self._spare = self._spare, None
        running = RunningCommand(spare or _start_supervisor(), order, on_end)
        threading.Thread(target=self._refill, name="spare supervisor", daemon=True).start()
        return running

    def _refill(self) -> None:
        with self._lock:
            if self._spare is None and not self._closed:
                self._spare = _start_supervisor()

    def close(self) -> None:
        """End the spare supervisor; the others end with their commands."""
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.communicate()


def _start_supervisor() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(Path(scheduler.__file__).resolve().parents[1])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}, cwd="/", start_new_session=True,
    )
