"""A host with tracked jobs: workers run them and report, and the host receives their ends."""

import contextlib
import heapq
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pika

from chaos.load import Event, Host, RequestedJob
from chaos.replicas import ROOT

POLICY: dict[str, Any] = {"start_timeout": 25, "timeout": 20, "max_attempts": 5, "backoff": [0.3, 0.5]}
FINISHED = "chaos_finished"
MANGLED = "chaos_results"


@dataclass
class AttemptRecord:
    """An attempt, from its workers' journals."""

    emitted_at: float
    started: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)
    reports: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    confirmed: set[str] = field(default_factory=set)  # statuses that the broker has confirmed


@dataclass
class RunRecords:
    """The host's records of each event: attempts by number, and ends."""

    attempts: dict[str, dict[int, AttemptRecord]] = field(default_factory=dict)
    finished: dict[str, list[tuple[float, dict[str, Any]]]] = field(default_factory=dict)


class WorkerPool:
    """Worker processes, restarted when they die."""

    def __init__(self, amqp_url: str, count: int, *, results: str, hangs: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="chaos-workers-")
        self._command = [sys.executable, "-m", "chaos.worker"]
        self._arguments = [results, str(hangs)]
        self._env = os.environ | {"AMQP_URL": amqp_url.split(",", maxsplit=1)[0]}
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker_pool", daemon=True)
        self._random = random.Random(13)

    @property
    def journals(self) -> list[Path]:
        return sorted(Path(self._folder.name).iterdir())

    def start(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            for slot, process in enumerate(self._processes):
                if process is None or process.poll() is not None:
                    journal = Path(self._folder.name) / f"worker-{slot}.jsonl"
                    self._processes[slot] = subprocess.Popen(
                        [*self._command, str(journal), *self._arguments], env=self._env, cwd=ROOT,
                    )

    def kill(self) -> None:
        """Kill a random worker."""
        running = [process for process in self._processes if process is not None and process.poll() is None]
        if running:
            self._random.choice(running).send_signal(signal.SIGKILL)

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for process in self._processes:
            if process is not None:
                process.kill()
                process.wait()
        self._folder.cleanup()


class TrackedHost(Host):
    """A host that requests tracked jobs. Its workers handle the events, and their journals are its records."""

    def __init__(
        self, amqp_url: str, *, workers: int = 6, hangs: int = 3, delay: float = 0.0, one_shots: float = 25,
        recurring: float = 1, count: int = 5,
    ) -> None:
        """With a `delay`, results are delayed by up to that many seconds and shuffled, some duplicated."""
        super().__init__(amqp_url, one_shots=one_shots, recurring=recurring, cancels=0, count=count)
        self.runs = RunRecords()
        self._delay = delay
        # Allow for results that are still in flight.
        self.policy = POLICY | {name: POLICY[name] + delay for name in ("start_timeout", "timeout")}
        self.worker_pool = WorkerPool(amqp_url, workers, results=MANGLED if delay else "schedule.commands", hangs=hangs)
        self._read: dict[Path, int] = {}
        self._held: list[tuple[float, bytes]] = []  # a heap
        self._mangled = not delay
        for name, work in (("finished", self._receive_finished), *((("mangler", self._mangle),) if delay else ())):
            self._threads.append(threading.Thread(target=self._keep, args=(work,), name=name, daemon=True))

    def start(self) -> None:
        with contextlib.closing(pika.BlockingConnection(pika.URLParameters(self._urls[0]))) as connection:
            channel = connection.channel()
            channel.queue_declare(FINISHED, durable=True)
            channel.queue_bind(FINISHED, "schedule.events", "finished")
            if self._delay:
                channel.exchange_declare(MANGLED, "fanout", durable=True)
                channel.queue_declare(MANGLED, durable=True)
                channel.queue_bind(MANGLED, MANGLED)
        super().start()
        self.worker_pool.start()

    def request(self, run_at: datetime, count: int = 0, **fields: object) -> RequestedJob:
        return super().request(run_at, count, **{"run": self.policy} | fields)

    def close(self) -> None:
        super().close()
        self.worker_pool.close()

    @property
    def mangled(self) -> bool:
        """Whether no result is held back, here or in the queue."""
        return self._mangled

    # --- the workers' journals, instead of a receiver

    def _receive(self, connection: pika.BlockingConnection) -> None:
        while not self._stop.is_set():
            connection.process_data_events(0.1)
            for journal in self.worker_pool.journals:
                self._read_journal(journal)

    def _read_journal(self, journal: Path) -> None:
        with journal.open("rb") as file:
            file.seek(self._read.get(journal, 0))
            for line in file:
                if line.endswith(b"\n"):  # a partial line is read the next time
                    self._read[journal] = self._read.get(journal, 0) + len(line)
                    with contextlib.suppress(ValueError):  # the last line of a killed worker
                        self._record_line(json.loads(line))

    def _record_line(self, line: dict[str, Any]) -> None:
        attempts = self.runs.attempts.setdefault(line["event_id"], {})
        if line["what"] == "started":
            due, emitted = (datetime.fromisoformat(line[name]) for name in ("due_at", "emitted_at"))
            attempt = attempts.setdefault(line["attempt"], AttemptRecord(emitted.timestamp()))
            attempt.started.append(line["at"])
            if line["attempt"] == 1 or len(attempts) == 1:
                received = datetime.fromtimestamp(line["at"], tz=due.tzinfo)
                self.records.events.append(Event(line["event_id"], line["job_id"], due, emitted, received))
            return
        attempt = attempts[line["attempt"]]
        if line["what"] == "confirmed":
            attempt.confirmed.add(line["status"])
        elif line["status"] == "running":
            attempt.running.append(line["at"])
        else:
            attempt.reports.append((line["at"], line))

    # --- ends of runs

    def _receive_finished(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        for method, _, body in channel.consume(FINISHED, inactivity_timeout=0.1):
            if self._stop.is_set():
                return
            if method is not None:
                event = json.loads(body)
                self.runs.finished.setdefault(event["event_id"], []).append((time.time(), event))
                channel.basic_ack(method.delivery_tag)

    # --- late, duplicate and shuffled results

    def _mangle(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()  # without confirms, which would be slower than the workers
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        chance = random.Random(7)
        for method, _, body in channel.consume(MANGLED, inactivity_timeout=0.02):
            if method is not None:
                for _ in range(chance.choice((1, 1, 2, 3))):
                    heapq.heappush(self._held, (time.monotonic() + chance.uniform(0, self._delay), body))
                channel.basic_ack(method.delivery_tag)
            while self._held and self._held[0][0] <= time.monotonic():
                channel.basic_publish("schedule.commands", "result", self._held[0][1], properties)
                heapq.heappop(self._held)
            self._mangled = method is None and not self._held
            if self._stop.is_set():
                return
