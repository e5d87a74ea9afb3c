"""Run our processes under a small supervisor, like an orchestrator."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from scheduler.dev.servers import Stack

ROOT = Path(__file__).parent.parent
_FOREIGN = ("SCHEDULER_", "METRICS_", "LOG_", "PG", "DATABASE_URL", "AMQP_URL")


class Replica:
    """A slot for one process. All its successive processes write to one log file."""

    def __init__(self, stack: Stack, name: str, role: str, env: dict[str, str], code: Path = ROOT) -> None:
        self.name = name
        self.code = code  # the release that the next process runs
        self.role = role
        self.log = stack.directory / f"{name}.log"
        self.starts = 0
        self.expected_to_end = False
        self._stack = stack
        self._env = env
        self._offset = 0
        self._starts: list[tuple[Path, int]] = []
        self.popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.starts += 1
        self.expected_to_end = False
        self._offset = self.log.stat().st_size if self.log.exists() else 0
        self._starts.append((self.code, self._offset))
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        env = clean | {"METRICS_HOST": "127.0.0.1", "METRICS_PORT": "0", "PYTHONUNBUFFERED": "1"} | self._env
        env["PYTHONPATH"] = str(self.code)
        with self.log.open("ab") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "scheduler", self.role], env=env, cwd=self.code,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )
        with contextlib.suppress(ProcessLookupError):
            self._stack.adopt(self.popen.pid)

    def spans(self) -> list[tuple[Path, int, int]]:
        """Return the release and log range of each process in this slot."""
        ends = [begin for _, begin in self._starts[1:]] + [self.log.stat().st_size]
        return [(code, begin, end) for (code, begin), end in zip(self._starts, ends, strict=True)]

    def change(self, env: Callable[[str, dict[str, str]], dict[str, str]]) -> None:
        """Change the environment of the next process."""
        self._env = env(self.name, dict(self._env))

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def running(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def send(self, signum: int) -> None:
        if self.running:
            self.popen.send_signal(signum)

    def end(self, signum: int, within: float = 30.0) -> tuple[int, float]:
        """Signal the process, wait for its end, and return its exit code and the seconds it took.

        Times when the machine stalled this process as well do not count.
        """
        self.expected_to_end = True
        ending = self.popen  # the supervisor soon replaces it
        began, machine_stalls = time.monotonic(), 0.0
        self.send(signum)
        while (polled_at := time.monotonic()) - began < within:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return ending.wait(0.05), time.monotonic() - began - machine_stalls
            machine_stalls += max(0.0, time.monotonic() - polled_at - 0.1)
        raise TimeoutError(f"{self.name} did not end within {within:g} s")

    @property
    def port(self) -> int | None:
        text = self.log.read_bytes()[self._offset:].decode(errors="replace")
        ports = re.findall(r'"metrics_port": (\d+)', text)
        return int(ports[-1]) if ports else None

    def http(self, path: str) -> tuple[int, str]:
        port = self.port
        if port is None:
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self) -> bool:
        return self.running and self.http("/readyz")[0] == 200

    def missing(self) -> dict[str, str]:
        """Return the missing dependencies from /readyz."""
        status, text = self.http("/readyz")
        if status != 503:
            return {}
        return {name: details["problem"] for name, details in json.loads(text)["missing"].items()}

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all labels that are not given."""
        total = 0.0
        for line in self.http("/metrics")[1].splitlines():
            if re.split(r"[{ ]", line, maxsplit=1)[0] == name and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total


class Supervisor:
    """Keep every replica running until it is closed."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas = list(replicas)
        self.crashes: list[str] = []
        self._held: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self, within: float = 120.0) -> None:
        for replica in self.replicas:
            replica.start()
        self._thread.start()
        wait_for(self.all_ready, "every process ready", within)

    def by_role(self, role: str) -> list[Replica]:
        return [replica for replica in self.replicas if replica.role == role]

    def hold(self, replica: Replica) -> None:
        """Do not restart this replica until it is released."""
        self._held.add(replica.name)

    def release(self, replica: Replica) -> None:
        self._held.discard(replica.name)

    def all_ready(self) -> bool:
        return all(replica.ready() for replica in self.replicas)

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            for replica in self.replicas:
                if replica.name in self._held or replica.running or self._stop.is_set():
                    continue
                if not replica.expected_to_end:
                    self.crashes.append(f"{replica.name} ended on its own with code {replica.popen.returncode}")
                replica.start()

    def close(self) -> list[str]:
        """Stop all replicas and return the ones that did not exit 0. `rolling-restart` measures the time."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        problems = []
        began = time.monotonic()
        for replica in self.replicas:
            replica.expected_to_end = True
            replica.send(signal.SIGCONT)
            replica.send(signal.SIGTERM)
        for replica in self.replicas:
            if replica.popen is None:
                continue
            try:
                code = replica.popen.wait(max(0.1, 60 - (time.monotonic() - began)))
            except subprocess.TimeoutExpired:
                replica.popen.kill()
                replica.popen.wait()
                problems.append(f"{replica.name} had to be killed")
            else:
                if code != 0:
                    problems.append(f"{replica.name} exited {code}")
        return problems


def wait_for(condition: Callable[[], object], what: str, within: float) -> None:
    """Wait until `condition` holds; raise TimeoutError with `what` otherwise."""
    deadline = time.monotonic() + within
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within:g} s: {what}")
        pause.wait(0.1)
