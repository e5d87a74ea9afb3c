"""The processes of the system under test, under a supervisor that starts them again, as an orchestrator would."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from torture.history import History

_FOREIGN = ("SCHEDULER_", "METRICS_", "LOG_", "PG", "DATABASE_URL", "AMQP_URL", "API_", "OTEL_")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Member:
    """One process of the fleet; the supervisor starts it again when it ends."""

    def __init__(self, name: str, command: list[str], env: dict[str, str], code: Path, folder: Path,
                 adopt: Callable[[int], None]) -> None:
        self.name = name
        self.role = name.partition("-")[0]
        self.log = folder / f"{name}.log"
        self.command = command
        self.env = env
        self.code = code
        self._adopt = adopt
        self.popen: subprocess.Popen[bytes] | None = None
        self.held = False  # the nemesis keeps it down
        self.killed = False
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        self.killed = False
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        env = clean | {"METRICS_HOST": "127.0.0.1", "METRICS_PORT": "0", "PYTHONUNBUFFERED": "1"} | self.env
        env["PYTHONPATH"] = os.pathsep.join([str(self.code), env.get("PYTHONPATH", "")])
        with self.log.open("ab") as output:
            self.popen = subprocess.Popen(self.command, env=env, cwd=self.log.parent, stdin=subprocess.DEVNULL,
                                          stdout=output, stderr=output)
        with contextlib.suppress(ProcessLookupError):
            self._adopt(self.popen.pid)

    @property
    def running(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def send(self, signum: int) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.popen.send_signal(signum)

    @property
    def port(self) -> int | None:
        """The metrics port of the newest process, from its log."""
        found = re.findall(rb'"metrics_port": (\d+)', self.log.read_bytes()) if self.log.exists() else []
        return int(found[-1]) if len(found) >= self.starts else None

    def ready(self) -> bool:
        if self.role in {"outbox", "runner"}:  # they serve no health endpoint
            return self.running
        if not self.running or self.port is None:
            return False
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.HTTPError, OSError):
            return False

    def rss(self) -> int:
        """Resident bytes of the process and its children."""
        if not self.running:
            return 0
        try:
            text = Path(f"/proc/{self.popen.pid}/statm").read_text(encoding="ascii")
        except OSError:
            return 0
        return int(text.split()[1]) * PAGE


class Fleet:
    """All members; records unexpected starts and ends."""

    def __init__(self, history: History, code: Path, folder: Path, adopt: Callable[[int], None]) -> None:
        """Call `adopt` with each process, so that it ends with the servers if the harness is killed."""
        self.members: list[Member] = []
        self._history = history
        self._code = code
        self._folder = folder
        self._adopt = adopt
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def add(self, name: str, arguments: list[str], env: dict[str, str]) -> Member:
        command = [sys.executable, *arguments]
        member = Member(name, command, env, self._code, self._folder, self._adopt)
        self.members.append(member)
        return member

    def run(self, arguments: list[str], env: dict[str, str], within: float = 120, text: str = "") -> tuple[int, str]:
        """Run a command of the system under test to its end; return its exit code and output."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        done = subprocess.run(
            [sys.executable, "-m", "scheduler", *arguments], env=clean | env | {"PYTHONPATH": str(self._code)},
            cwd=self._folder, capture_output=True, text=True, timeout=within, check=False, input=text,
        )
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr

    def start(self, within: float = 120) -> None:
        for member in self.members:
            member.start()
        self._thread.start()
        limit = time.monotonic() + within
        while waiting := [member for member in self.members if not member.ready()]:
            if time.monotonic() > limit:
                tails = {m.name: m.log.read_text(encoding="utf-8", errors="replace")[-600:] for m in waiting}
                raise RuntimeError(f"not ready within {within:g} s: {tails}")
            time.sleep(0.2)

    def by_role(self, role: str) -> list[Member]:
        return [member for member in self.members if role in {member.role, member.name, "all"}]

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for member in self.members:
                if member.held or member.running:
                    continue
                code = member.popen.returncode
                self._history.add("ended", member=member.name, code=code, ordered=member.killed)
                member.start()
                self._history.add("started", member=member.name)

    def close(self) -> None:
        """End all processes once; those that do not end within 20 s are killed and recorded."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for member in self.members:
            member.send(signal.SIGCONT)
            member.send(signal.SIGTERM)
        limit = time.monotonic() + 20
        for member in self.members:
            if member.popen is None:
                continue
            try:
                code = member.popen.wait(max(0.1, limit - time.monotonic()))
                self._history.add("stopped", member=member.name, code=code)
            except subprocess.TimeoutExpired:
                member.popen.kill()
                member.popen.wait()
                self._history.add("stopped", member=member.name, code=-9)
