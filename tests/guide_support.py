"""Follows a guide in docs/guides/ as a reader does: writes its files, runs its `sh` blocks."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from support import DEADLINE, until

from scheduler.dev.servers.ports import free_ports

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"^(?:#|//|--) (\S+\.\w+)( \(at the end\))?$")


def celery_packages() -> Path:
    """Return a folder with Celery, apart from the environment: it needs an older python-dateutil."""
    wanted = (ROOT / "requirements" / "celery.txt").read_text(encoding="utf-8")
    folder = Path(sys.prefix) / "celery"  # goes with the environment: `make clean` removes it
    stamp = folder / ".installed"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # keeps out the other workers of the test run
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run(
                [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes",
                 "--target", folder, "-r", ROOT / "requirements" / "celery.txt"], check=True)
            stamp.write_text(wanted, encoding="utf-8")
    return folder


class Guide:
    """A page, followed in an empty directory. Blocks in `console` are for the reader only."""

    def __init__(self, page: str, folder: Path, environment: Mapping[str, str]) -> None:
        text = (ROOT / "docs" / "guides" / page).read_text(encoding="utf-8")
        self._text = text.replace("8000", str(*free_ports(1)))  # other tests may use it
        self._folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = os.environ | {"PATH": path, "PYTHONPATH": "", **environment}
        self._sessions: list[int] = []

    def follow(self, after: Callable[[str], object] = str) -> str:
        """Write the files and run the commands in the page's order; return what the commands printed.

        `after` is called after each block of commands, with its output.
        """
        printed = ""
        for language, code in _BLOCK.findall(self._text):
            first = _FILE.match(code.partition("\n")[0])
            if first is not None:
                self._write(first[1], code, append=first[2] is not None)
            elif language == "sh":
                printed += self._run(code)
                after(printed)
            else:
                assert language == "console", f"a block in {language} without a file name: {code[:60]}"
        return printed

    def _write(self, name: str, code: str, *, append: bool) -> None:
        path = self._folder / name
        for parent in reversed(path.parents):
            if parent.is_relative_to(self._folder) and not parent.exists():
                parent.mkdir()
                (parent / "__init__.py").touch()
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(code)

    def _run(self, code: str) -> str:
        output = self._folder / f".output{len(self._sessions)}"
        with output.open("w") as file:  # not a pipe: what the block leaves running would keep it open
            shell = subprocess.Popen(
                ["sh", "-e", "-c", code], cwd=self._folder, env=self._environment, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True)
        self._sessions.append(shell.pid)
        code_of_exit = shell.wait(5 * DEADLINE)
        printed = output.read_text(encoding="utf-8")
        assert code_of_exit == 0, f"{code}\n{printed}"
        return printed

    def read(self, name: str) -> str:
        """Return the text of a file in the directory, or nothing if it does not exist yet."""
        path = self._folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def stop(self) -> None:
        """Stop what the commands left running, and wait for its end."""
        for session in self._sessions:
            with suppress(ProcessLookupError):
                os.killpg(session, signal.SIGTERM)
        until(lambda: not any(map(_running, self._sessions)), "the end of what the guide started")


def _running(session: int) -> bool:
    """Return whether a process of the session is left, apart from those that nobody waited for."""
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


@contextmanager
def guide(page: str, folder: Path, **environment: str) -> Iterator[Guide]:
    """Open a guide, and stop at the end what it started."""
    opened = Guide(page, folder, environment)
    try:
        yield opened
    finally:
        opened.stop()
