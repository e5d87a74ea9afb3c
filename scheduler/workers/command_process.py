"""Runs one command, seen from the worker: a supervisor for each, and one in reserve so that none is waited for."""

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

# A supervisor that hears nothing for so long takes its worker for frozen, and ends the command before the sidecar,
# which waits longer, hands it to another.
LEASE_SECONDS = 12.0
# Isolated from whatever is in the worker's environment; the standard library comes first, then our package.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); from scheduler.workers.supervisor.supervision import main; main()"
)
_NEVER_BETTER = (errno.E2BIG, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class CommandOrder:
    """What to run, and within what bounds."""

    run: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    stdin: bytes
    timeout: float
    grace: float
    limits: Mapping[str, int]
    user: str | None = None
    argument_pattern: str | None = None
    arguments: tuple[str, ...] = ()  # of `run`, those that the job gave

    def line(self) -> bytes:
        """Write it for the supervisor."""
        return json.dumps({
            "run": self.run, "directory": self.directory, "environment": dict(self.environment),
            "stdin": base64.b64encode(self.stdin).decode(), "timeout": self.timeout, "grace": self.grace,
            "limits": dict(self.limits), "user": self.user, "lease": LEASE_SECONDS,
            "argument_pattern": self.argument_pattern, "arguments": self.arguments,
        }).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended, or why it could not begin."""

    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    ended_by: str | None = None  # `deadline`, `silence` of this worker, or what the worker gave as its reason
    left_behind: int = 0  # processes that it started and that were ended after it
    survivors: int = 0  # of those, what could not be ended
    problem: str | None = None  # it was not started
    hopeless: bool = False  # nor would it be another time


class RunningCommand:
    """A command at work."""

    def __init__(self, process: "subprocess.Popen[bytes]", order: CommandOrder,
                 on_end: Callable[[CommandEnd], None]) -> None:
        """Start it; `on_end` is called once, on a thread of its own."""
        self._process = process
        self._on_end = on_end
        self._sending = threading.Lock()
        self._pid: int | None = None
        self.newest = CommandEnd()  # what it has written so far
        self._send(order.line())
        threading.Thread(target=self._listen, name="command", daemon=True).start()

    def beat(self) -> None:
        """Say that this worker is alive, and ask for the newest output."""
        self._send(b'{"beat":1}\n')

    def end(self, why: str, grace: float | None = None) -> None:
        """End it: SIGTERM, and after its grace SIGKILL."""
        order = {"end": why} if grace is None else {"end": why, "grace": grace}
        self._send(json.dumps(order).encode() + b"\n")

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        with self._sending, contextlib.suppress(OSError, ValueError):  # it has ended, which is told elsewhere
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        ended = None
        with self._process.stdout as reports:
            for line in reports:
                report = json.loads(line)
                if "started" in report:
                    self._pid = report["started"]
                elif "problem" in report:
                    ended = CommandEnd(problem=report["problem"], hopeless=report["errno"] in _NEVER_BETTER)
                else:
                    self.newest = _read(report)
                    ended = self.newest if "ended_by" in report else None
        if ended is None:
            ended = self._orphaned()
        with self._sending, contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]  # a pipe
        self._process.wait()
        self._on_end(ended)

    def _orphaned(self) -> CommandEnd:
        """Somebody killed the supervisor; the system has ended its child with it, but not the child's children."""
        if self._pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
        return CommandEnd(problem="its supervisor was killed, and the command with it")


def _read(report: dict[str, Any]) -> CommandEnd:
    return CommandEnd(
        report.get("exit_code"), report.get("signal"), base64.b64decode(report["stdout"]),
        base64.b64decode(report["stderr"]), report["seconds"], report.get("ended_by"),
        report.get("left_behind", 0), report.get("survivors", 0),
    )


class Supervisors:
    """Starts commands; a supervisor waits for the next one already, so that starting takes no more than a fork."""

    def __init__(self) -> None:
        self._spare: subprocess.Popen[bytes] | None = None
        self._taking = threading.Lock()
        self._closed = False
        self._refill()

    def start(self, order: CommandOrder, on_end: Callable[[CommandEnd], None]) -> RunningCommand:
        """Start a command."""
        with self._taking:
            spare, self._spare = self._spare, None
        running = RunningCommand(spare or _supervisor(), order, on_end)
        threading.Thread(target=self._refill, name="spare supervisor", daemon=True).start()
        return running

    def _refill(self) -> None:
        with self._taking:
            if self._spare is None and not self._closed:
                self._spare = _supervisor()

    def close(self) -> None:
        """Let go of the one in reserve; those with a command end with it."""
        with self._taking:
            self._closed = True
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.communicate()


def _supervisor() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own file
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(Path(scheduler.__file__).resolve().parents[1])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}, cwd="/", start_new_session=True,
    )
