"""A command as a child process in a session of its own, and all that descends from it."""

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

from scheduler.workers.supervisor.pipes import READ_BYTES, OutputTail

CPU_GRACE = 5  # seconds of CPU between SIGXCPU and SIGKILL
FOR_THE_WORKER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOT_STARTED = 127
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIMITS = {
    "memory": resource.RLIMIT_AS, "cpu_seconds": resource.RLIMIT_CPU, "open_files": resource.RLIMIT_NOFILE,
    "file_size": resource.RLIMIT_FSIZE,
}


def now() -> float:
    """Return seconds that go on while the machine sleeps: a worker on it has been silent for all of them."""
    at: float = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    return at


def adopt() -> None:
    """Have every orphan among our descendants become our child; only Linux can do that."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class CommandChild:
    """A command that was started, or could not be."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.began = now()
        given, self.stdin = os.pipe()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        failed, failed_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _exec_as(order, (given, out_end, err_end), failed_end)
        for descriptor in (given, out_end, err_end, failed_end):
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
        return [each for each in (self.stdout, self.stderr) if each.descriptor is not None]

    @property
    def hungry(self) -> bool:
        """Whether there is input left to give."""
        return self._input is not None

    def feed(self) -> None:
        """Give as much input as it takes now, and close it after the last; who wants none need not read."""
        assert self._input is not None  # noqa: S101 - the caller has asked
        try:
            self._input = self._input[os.write(self.stdin, self._input[:READ_BYTES]):] if self._input else None
        except BlockingIOError:
            return
        except OSError:  # it closed its end
            self._input = None
        if not self._input:
            self._input = None
            os.close(self.stdin)

    def reap(self) -> None:
        """Take note of all that have ended, adopted ones too."""
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
        """Send a signal to the group and to all that descend from it; return how many that were."""
        below = descendants()
        if self.status is None:  # while it is not reaped its number is its own
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)
        for pid in below:
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != self.pid or self.status is not None:
                    os.kill(pid, number)
        return len(below)

    @property
    def changed(self) -> bool:
        """Whether there is output that was not reported."""
        return self.stdout.changed or self.stderr.changed

    def report(self) -> dict[str, Any]:
        """Return the newest output."""
        for each in (self.stdout, self.stderr):
            each.changed = False
        return {"stdout": self.stdout.text(), "stderr": self.stderr.text(), "seconds": now() - self.began}


def _exec_as(order: dict[str, Any], streams: tuple[int, int, int], failed: int) -> None:
    """Turn this freshly forked process into the command; never returns."""
    try:
        os.setsid()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        for each in (signal.SIGPIPE, signal.SIGXFSZ, *FOR_THE_WORKER, signal.SIGCHLD):
            signal.signal(each, signal.SIG_DFL)
        if order["user"]:
            user = pwd.getpwnam(order["user"])
            if os.geteuid() != user.pw_uid:
                os.initgroups(user.pw_name, user.pw_gid)
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.chdir(order["directory"])
        argv = [each.encode("utf-8", "surrogateescape") for each in order["run"]]
        environment = {name.encode(): value.encode("utf-8", "surrogateescape")
                       for name, value in order["environment"].items()}
        for name, value in order["limits"].items():
            most = value + CPU_GRACE if name == "cpu_seconds" else value
            resource.setrlimit(_LIMITS[name], (value, most))
        os.execve(argv[0], argv, environment)  # noqa: S606 - a list of the operator's own file, and no shell
    except BaseException as error:  # noqa: BLE001 - whatever it is, the other side says it
        said = f"{getattr(error, 'errno', None) or 0} {getattr(error, 'strerror', None) or error}"
        os.write(failed, said.encode("utf-8", "replace")[:4000])
    finally:
        os._exit(_NOT_STARTED)


def _read_all(descriptor: int) -> str:
    parts = []
    while part := os.read(descriptor, READ_BYTES):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def descendants() -> list[int]:
    """Return all processes below this one, whatever group or session they are in."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
                parent = int(path.read_bytes().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.parent.name))
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found
