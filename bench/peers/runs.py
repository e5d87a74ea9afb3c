"""Run a peer's workers over due jobs, with a separate database and virtual host."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg2

from bench import emit
from bench.peers import install
from bench.servers import Bed, finished_in
from bench.yardsticks import BODY
from scheduler.dev.servers import Stack

WORKERS = Path(__file__).parent / "workers"
LIMIT = 120.0  # seconds for one measurement


class FailedError(Exception):
    """A peer did not finish its work."""


@dataclass(frozen=True)
class Peer:
    """A library, its best settings here, and the SQL that shows whether its jobs are settled."""

    name: str
    script: str
    version: str
    processes: int
    settings: dict[str, Any]
    publishing: dict[str, Any] = field(default_factory=dict)  # different settings for the job that publishes
    left: str | None = None  # SQL condition: jobs are left
    share: float = 1.0  # divisor of the job count: slow peers get fewer jobs

    def settings_for(self, mode: str) -> dict[str, Any]:
        return self.settings | (self.publishing if mode == "publish" else {})

    def command(self) -> list[str]:
        runtime = install.node() if self.script.endswith(".mjs") else install.python()
        return [runtime, str(WORKERS / self.script)]


class Processors:
    """Processor time of the servers and the workers, which other load on the machine affects little."""

    def __init__(self) -> None:
        self._before = self._times()

    def used(self) -> float:
        """Return the seconds since this object was created."""
        return sum(seconds - self._before.get(pid, 0.0) for pid, seconds in self._times().items())

    @staticmethod
    def _times() -> dict[int, float]:
        times = {}
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                cpu_times = process.cpu_times()
                times[process.pid] = cpu_times.user + cpu_times.system
        return times


@dataclass(frozen=True)
class Drained:
    """Rate and cost of draining a backlog."""

    rate: float  # jobs per second
    cpu: float  # microseconds of processor time per job, servers and workers together


def drain(stack: Stack, peer: Peer, mode: str, count: int) -> Drained:
    """Time from the first started job until all are settled, without start-up and polling."""
    first = time.time() - 1
    with _running(stack, peer, mode, count, first, 0) as (bed, directory, printed):
        processors = Processors()
        (directory / "go").touch()
        meters = _until_handled(directory, count, printed)
        ended = max(meter["last"] for meter in meters)
        if peer.left:
            ended = max(ended, _until_settled(bed, peer.left))
        used = processors.used()
        if mode == "publish":
            _check_queue(bed, count)
        return Drained(count / (ended - min(meter["first"] for meter in meters)), used / count * 1e6)


def drain_ours(stack: Stack, replicas: int, count: int) -> Drained:
    """Time from the due instant until all are settled, like bench.emit.drain."""
    with Bed(stack) as bed, contextlib.ExitStack() as running:
        emit.one_shots(bed, count)
        for _ in range(replicas):
            running.enter_context(bed.process("scheduler", "producer"))
        bed.sql("UPDATE jobs SET next_run_at = now() + interval '2 seconds', starts_at = now() + interval '2 seconds'")
        bed.sql("VACUUM jobs")
        processors = Processors()
        bed.sql("SELECT pg_sleep_until(min(next_run_at)) FROM jobs")
        started = time.monotonic()
        condition = "NOT EXISTS (SELECT 1 FROM jobs WHERE status = 'pending' AND wake_at <= now())"
        elapsed = finished_in(bed, condition, started)
        used = processors.used()
        _check_queue(bed, count)
        return Drained(count / elapsed, used / count * 1e6)


def lags(stack: Stack, peer: Peer, rate: int, seconds: int) -> list[float]:
    """Return the milliseconds from due to confirmed for the job that publishes, at a steady rate."""
    first, count = time.time() + 10, rate * seconds
    with _running(stack, peer, "publish", count, first, rate) as (_, directory, printed):
        if time.time() > first:
            raise FailedError("not ready in time")
        (directory / "go").touch()
        return [lag for meter in _until_handled(directory, count, printed) for lag in meter["lags"]]


@contextlib.contextmanager
def _running(stack: Stack, peer: Peer, mode: str, count: int, first: float, rate: int) -> Iterator[tuple[Bed, Path, Path]]:
    command = peer.command()
    with Bed(stack) as bed, tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as closing:
        directory = Path(name)
        env = os.environ | {
            "DATABASE_URL": bed.database_url, "AMQP_URL": bed.amqp_url, "PEER_BODY": BODY.decode(), "PEER_COUNT": str(count),
            "PEER_FIRST": str(first), "PEER_RATE": str(rate), "PEER_MODE": mode, "PEER_DIR": name,
            "PEER_SETTINGS": json.dumps(peer.settings_for(mode)), "PEER_NODE_MODULES": str(install.NODE),
        }
        printed = directory / "printed"
        with printed.open("w") as output:
            prepared = subprocess.run([*command, "prepare"], env=env, check=False, timeout=LIMIT, stdout=output, stderr=output)
            if prepared.returncode:
                raise FailedError(_tail(printed))
            if peer.left:
                bed.sql("VACUUM ANALYZE")
            for number in range(peer.processes):
                process = subprocess.Popen([*command, "work", str(number)], env=env, stdout=output, stderr=output,
                                           start_new_session=True)
                closing.callback(_stop, process)
                stack.adopt(process.pid)
        _until(lambda: len(list(directory.glob("*.ready"))) >= peer.processes, printed)
        yield bed, directory, printed


def _until_handled(directory: Path, count: int, printed: Path) -> list[dict[str, Any]]:
    def meters() -> list[dict[str, Any]]:
        return [json.loads(file.read_text(encoding="utf-8")) for file in directory.glob("*.meter")]

    _until(lambda: sum(meter["count"] for meter in meters()) >= count, printed)
    return meters()


def _until_settled(bed: Bed, left: str) -> float:
    connection = psycopg2.connect(bed.database_url)
    connection.autocommit = True
    with contextlib.closing(connection), connection.cursor() as cursor:
        deadline = time.time() + LIMIT
        while time.time() < deadline:
            cursor.execute(f"SELECT EXISTS ({left})")
            if not cursor.fetchone()[0]:  # type: ignore[index]
                return time.time()
            time.sleep(0.005)
    raise FailedError("handled all jobs but did not settle them")


def _check_queue(bed: Bed, count: int) -> None:
    """Check that the queue contains the confirmed messages."""
    for _ in range(50):
        if bed.depth("mainapp_due") >= count:
            return
        time.sleep(0.1)
    raise FailedError(f"published {bed.depth('mainapp_due')} of {count}")


def _until(condition: Any, printed: Path) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise FailedError(f"not done in {LIMIT:.0f} s. {_tail(printed)}")
        time.sleep(0.01)


def _tail(printed: Path) -> str:
    return " ".join(printed.read_text(encoding="utf-8", errors="replace").split())[-400:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the worker and its child processes."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
