"""Identify processes by id and start time, and end them with their children."""
# ruff: noqa: S603, S607 - fixed programs of the system, with arguments of our own

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STATE, _PARENT, _THREADS, _START = 0, 1, 17, 19  # fields of /proc/PID/stat, after the command's closing bracket
# Deadlines only detect hangs: on a busy machine an operation of a second may take a minute.
SERVER_DEADLINE = 180.0


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process id with the start time: an id alone may have been reused."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity":
        """Identify a process that runs now."""
        started = start_time(pid)
        if started is None:
            raise ProcessLookupError(pid)
        return cls(pid, started)

    def alive(self) -> bool:
        """Return whether this process is still running."""
        return start_time(self.pid) == self.started

    def send(self, signum: int) -> None:
        """Signal the process if it is still running."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)


def start_time(pid: int) -> str | None:
    """Return a token of the process's start time; None if it does not run, or is a zombie."""
    if not _PROC.joinpath("self/stat").exists():
        return _start_time_from_ps(pid)
    fields = _stat(pid)
    # After a kill, its first thread may end before the others, which still hold its ports and files.
    if fields is None or (fields[_STATE] in "ZX" and int(fields[_THREADS]) <= 1):
        return None
    return f"{_boot()}/{fields[_START]}"


def wait_until(done: Callable[[], bool], seconds: float, step: float = 0.02) -> bool:
    """Poll `done` until it is true or the time is up, and return its last value."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(step)
    return True


def end(processes: Iterable[ProcessIdentity], signum: int, grace: float) -> None:
    """Terminate each process; kill the ones that do not end in time, with their descendants."""
    stopping = list(processes)
    if signum == signal.SIGKILL:
        grace = 0.0  # nothing to wait for, and its descendants must go with it
    else:
        for process in stopping:
            process.send(signum)
    wait_until(lambda: not any(p.alive() for p in stopping), grace)
    for process in stopping:
        kill_tree(process)


def kill_tree(process: ProcessIdentity) -> None:
    """Kill a process and its descendants at once."""
    # Stop it first, so that it cannot fork between the listing and the kill.
    process.send(signal.SIGSTOP)
    family = [process, *descendants(process.pid)] if process.alive() else []
    for member in family:
        member.send(signal.SIGKILL)
    wait_until(lambda: not any(member.alive() for member in family), SERVER_DEADLINE)


def descendants(pid: int) -> list[ProcessIdentity]:
    """Return the processes below this one."""
    parents = _parents()
    descendants = [child for child, parent in parents.items() if parent == pid]
    for child in descendants:
        descendants.extend(grandchild for grandchild, parent in parents.items() if parent == child)
    family = []
    for child in descendants:
        with contextlib.suppress(ProcessLookupError):
            family.append(ProcessIdentity.of(child))
    return family


def _parents() -> dict[int, int]:
    if not _PROC.joinpath("self/stat").exists():
        listed = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True)
        return {int(pid): int(parent) for pid, parent in map(str.split, listed.stdout.splitlines())}
    stats = {int(entry.name): _stat(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdigit()}
    return {pid: int(fields[_PARENT]) for pid, fields in stats.items() if fields}


def _stat(pid: int) -> list[str] | None:
    try:
        text = _PROC.joinpath(str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _boot() -> str:
    # Start times count from boot: without this, a directory that outlives a reboot could name another process.
    try:
        return _PROC.joinpath("sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _start_time_from_ps(pid: int) -> str | None:
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = shown.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
