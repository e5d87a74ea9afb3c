"""Run a command as a child process in its own session, and signal all its descendants."""

import base64
import contextlib
import ctypes
import os
import pwd
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from scheduler.workers.command.supervisor.pipes import READ_BYTES, OutputTail

CPU_GRACE = 5  # seconds of CPU between SIGXCPU and SIGKILL
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOT_STARTED = 127
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIMITS = {
    "memory": resource.RLIMIT_AS, "cpu_seconds": resource.RLIMIT_CPU, "open_files": resource.RLIMIT_NOFILE,
    "file_size": resource.RLIMIT_FSIZE,
}


def now() -> float:
    """Return monotonic seconds, including suspension: a suspended worker sends no heartbeats."""
    at: float = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    return at


def adopt() -> None:
    """Become the parent of orphaned descendants; only on Linux."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class CommandChild:
    """A started command, or one that could not start."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.began = now()
        stdin, self.stdin = os.pipe()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        failed, failed_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _exec(order, (stdin, out_end, err_end), failed_end)
        for descriptor in (stdin, out_end, err_end, failed_end):
            os.close(descriptor)
        self.problem = _read_all(failed)
        for descriptor in (self.stdin, out, err):
            os.set_blocking(descriptor, False)
        self.stdout, self.stderr = OutputTail(out), OutputTail(err)
        self._input: memoryview | None = memoryview(base64.b64decode(order["stdin"]))
        self.status: int | None = None
        self.childless = False

    @property
    def streams(self) -> list[OutputTail]:
        return [stream for stream in (self.stdout, self.stderr) if stream.descriptor is not None]

    @property
    def has_input(self) -> bool:
        """Whether there is unwritten input."""
        return self._input is not None

    def write_input(self) -> None:
        """Write as much input as the pipe accepts, and close the pipe at the end; the command need not read it."""
        assert self._input is not None  # noqa: S101 - the caller checks has_input
        try:
            self._input = self._input[os.write(self.stdin, self._input[:READ_BYTES]):] if self._input else None
        except BlockingIOError:
            return
        except OSError:  # the command closed its end
            self._input = None
        if not self._input:
            self._input = None
            os.close(self.stdin)

    def reap(self) -> None:
        """Reap all ended children, adopted ones too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                self.childless = False
                return
            if pid == self.pid:
                self.status = status

    def send(self, number: int) -> int:
        """Send a signal to the process group and all descendants; return the number of descendants."""
        pids = descendants()
        if self.status is None:  # until it is reaped, its pid is not reused
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)
        for pid in pids:
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != self.pid or self.status is not None:
                    os.kill(pid, number)
        return len(pids)

    @property
    def changed(self) -> bool:
        """Whether there is unreported output."""
        return self.stdout.changed or self.stderr.changed

    def report(self) -> dict[str, Any]:
        """Return the newest output."""
        for stream in (self.stdout, self.stderr):
            stream.changed = False
        return {"stdout": self.stdout.text(), "stderr": self.stderr.text(), "seconds": now() - self.began}


def _exec(order: dict[str, Any], streams: tuple[int, int, int], failed: int) -> None:
    """Replace this forked process with the command; never returns."""
    try:
        os.setsid()
        for standard, descriptor in enumerate(streams):
            os.dup2(descriptor, standard)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, *STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if order["user"]:
            user = pwd.getpwnam(order["user"])
            if os.geteuid() != user.pw_uid:
                os.initgroups(user.pw_name, user.pw_gid)
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.chdir(order["directory"])
        argv = [argument.encode("utf-8", "surrogateescape") for argument in order["run"]]
        environment = {name.encode(): value.encode("utf-8", "surrogateescape")
                       for name, value in order["environment"].items()}
        for name, value in order["limits"].items():
            hard = value + CPU_GRACE if name == "cpu_seconds" else value
            resource.setrlimit(_LIMITS[name], (value, hard))
        os.execve(argv[0], argv, environment)  # noqa: S606 - from the operator's file, without a shell
    except BaseException as error:  # noqa: BLE001 - the parent reports it
        problem = f"{getattr(error, 'errno', None) or 0} {getattr(error, 'strerror', None) or error}"
        os.write(failed, problem.encode("utf-8", "replace")[:4000])
    finally:
        os._exit(_NOT_STARTED)


def _read_all(descriptor: int) -> str:
    parts = []
    while part := os.read(descriptor, READ_BYTES):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def descendants() -> list[int]:
    """Return all descendants of this process, in any process group or session."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # the process has ended
                parent = int(path.read_bytes().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.parent.name))
    pids: list[int] = []
    queue = [os.getpid()]
    while queue:
        direct = children.get(queue.pop(), [])
        pids += direct
        queue += direct
    return pids
