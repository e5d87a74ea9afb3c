"""Keep a directory and a process list per stack, so that no process outlives its owner."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.dev.servers import sharedmemory
from scheduler.dev.servers.processes import ProcessIdentity, end
from scheduler.domain.errors import Misconfigured

_LOCK = "lock"
_RECORD = "stack.json"
_GRACE = 20.0  # our own processes promise 5, on a machine that has the time
_SWEEP_GRACE = 7.0  # after a killed owner everything is gone within 30 seconds, and its data is not needed


@dataclass(frozen=True, slots=True)
class Account:
    """The user of a server that may not run as this process's user."""

    uid: int
    gid: int


class Ledger:
    """One stack's directory and the processes that live on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._owner = ProcessIdentity.of(os.getpid())
        self._processes: dict[ProcessIdentity, int] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self._lock = threading.RLock()
        self._closed = False
        self._write()

    def spawn(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        output: Path | None = None,
        account: Account | None = None,
        cwd: Path | None = None,
        stop: int = signal.SIGTERM,
    ) -> subprocess.Popen[bytes]:
        """Start a process in a separate session and record it."""
        identity: dict[str, Any] = {}
        if account:
            identity = {"user": account.uid, "group": account.gid, "extra_groups": []}
        with self._lock, contextlib.ExitStack() as files:
            if self._closed:
                raise Misconfigured("the local servers are being stopped")
            log = files.enter_context(output.open("ab")) if output else subprocess.DEVNULL
            process = subprocess.Popen(  # noqa: S603 - the servers that this package is for
                [str(part) for part in command],
                env=dict(env) if env is not None else None,
                cwd=cwd or self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is for us: we stop our own processes first, then the servers.
                start_new_session=True,
                **identity,
            )
            self._children = [child for child in self._children if child.poll() is None] + [process]
            with contextlib.suppress(ProcessLookupError):  # it may have ended already
                self.adopt(process.pid, stop=stop)
        return process

    def adopt(self, pid: int, *, stop: int = signal.SIGTERM) -> None:
        """Record a process that must not outlive the stack, and the signal that stops it."""
        with self._lock:
            if self._closed:
                raise Misconfigured("the local servers are being stopped")
            self._processes[ProcessIdentity.of(pid)] = stop
            self._forget_dead()
            self._write()

    def owned(self) -> bool:
        """Return whether this process opened the ledger; a forked child did not."""
        return self._owner.pid == os.getpid()

    def close(self) -> None:
        """End what still runs and remove the directory; only the owner does, never its forked children."""
        if not self.owned():
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            _end_all(self._processes, _GRACE)
            for child in self._children:
                child.wait()
        base = self.directory.parent
        with locked(base):
            _remove(self.directory)
            _remove_if_empty(base)

    def _forget_dead(self) -> None:
        self._processes = {who: stop for who, stop in self._processes.items() if who.alive()}

    def _write(self) -> None:
        record = {
            "owner": [self._owner.pid, self._owner.started],
            "processes": [[who.pid, who.started, stop] for who, stop in self._processes.items()],
        }
        draft = self.directory / f"{_RECORD}.new"
        draft.write_text(json.dumps(record), encoding="utf-8")
        draft.replace(self.directory / _RECORD)


def open_ledger(base: Path, purpose: str) -> Ledger:
    """Sweep the stacks of dead owners below `base`, and open a new directory there."""
    with locked(base):
        sweep(base)
        directory = Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=base))
        # As root, Postgres runs under another uid and must get through to its data.
        directory.chmod(0o711 if os.geteuid() == 0 else 0o700)
        return Ledger(directory)


def sweep(base: Path) -> None:
    """End the processes and remove the directories of stacks whose owner is dead; `base` must be locked."""
    for directory in [entry for entry in base.iterdir() if entry.is_dir() and not entry.is_symlink()]:
        record = _read(directory)
        if record is None:
            # Created under the lock that we now hold, by a process that was killed before it wrote the record.
            _remove(directory)
        elif _end_orphans(record):
            _remove(directory)


def sweep_one(directory: Path) -> None:
    """Sweep after a single stack, and remove the base if it is empty."""
    base = directory.parent
    if not directory.exists():
        return
    if (record := _read(directory)) is not None:
        _end_orphans(record)  # without the lock, which the sweep of another stack may hold
    with locked(base):
        sweep(base)
        _remove_if_empty(base)


def owner_of(directory: Path) -> ProcessIdentity | None:
    """Return the process that opened this stack's ledger."""
    record = _read(directory)
    return ProcessIdentity(*record["owner"]) if record else None


def default_base() -> Path:
    """Return the folder of this user's stacks, which other accounts can traverse but not write to."""
    home = next((Path(d) for d in (tempfile.gettempdir(), "/var/tmp", "/tmp") if _passable(Path(d))), None)  # noqa: S108 - the usual places, for a folder of our own
    if home is None:
        raise Misconfigured("no temporary directory is open to other accounts; set TMPDIR to one that is")
    return home / f"scheduler-{os.geteuid()}"


@contextmanager
def locked(base: Path) -> Iterator[None]:
    """Hold the lock for creating and removing directories below `base`."""
    while True:
        _make_base(base)
        try:
            handle = os.open(base / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            continue  # removed between the two lines above
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _same_file(handle, base / _LOCK):
                yield
                return
            # Its last holder removed it: a lock on a deleted file protects nothing.
        finally:
            os.close(handle)


@contextmanager
def exclusive(base: Path) -> Iterator[None]:
    """Hold the lock of a directory that is only used for locking."""
    with locked(base):
        try:
            yield
        finally:
            _remove_if_empty(base)


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _make_base(base: Path) -> None:
    mode = 0o711 if os.geteuid() == 0 else 0o700
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=mode, parents=True)
    with contextlib.suppress(FileNotFoundError):
        facts = base.lstat()
        writable = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or writable:
            raise Misconfigured(f"{base} is not a private directory of this user; remove it and retry")


def _passable(folder: Path) -> bool:
    if os.geteuid() != 0:
        return os.access(folder, os.W_OK | os.X_OK)
    folder = folder.resolve()
    return folder.is_dir() and all(f.stat().st_mode & stat.S_IXOTH for f in (folder, *folder.parents))


def _read(directory: Path) -> Any:
    try:
        return json.loads((directory / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _end_orphans(record: Any) -> bool:
    """End the recorded processes if their owner is dead; return whether it is."""
    if ProcessIdentity(*record["owner"]).alive():
        return False
    processes = {ProcessIdentity(pid, started): stop for pid, started, stop in record["processes"]}
    _end_all(processes, _SWEEP_GRACE)
    return True


def _end_all(processes: Mapping[ProcessIdentity, int], grace: float) -> None:
    # Our own processes first, while their servers still respond.
    for signum in (signal.SIGTERM, *sorted(set(processes.values()) - {signal.SIGTERM})):
        end([who for who, stop in processes.items() if stop == signum], signum, grace)


def _remove(directory: Path) -> None:
    sharedmemory.release(directory)
    shutil.rmtree(directory, ignore_errors=True)


def _remove_if_empty(base: Path) -> None:
    if {entry.name for entry in base.iterdir()} <= {_LOCK}:
        (base / _LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            base.rmdir()
