"""A host whose jobs are tracked: workers do them and report, and the host hears how each ended."""

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

from chaos.load import Asked, Event, Host
from chaos.replicas import ROOT

POLICY: dict[str, Any] = {"start_timeout": 25, "timeout": 20, "max_attempts": 5, "backoff": [0.3, 0.5]}
FINISHED = "chaos_finished"
MANGLED = "chaos_results"


@dataclass
class Made:
    """An attempt, as its workers' journals tell it."""

    emitted_at: float
    begun: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)
    said: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    confirmed: set[str] = field(default_factory=set)  # the statuses that the broker has taken


@dataclass
class RunBooks:
    """What the host knows of each of its events: attempts by number, and how it ended."""

    attempts: dict[str, dict[int, Made]] = field(default_factory=dict)
    finished: dict[str, list[tuple[float, dict[str, Any]]]] = field(default_factory=dict)


class Staff:
    """Worker processes, each started again when it dies, as an orchestrator would."""

    def __init__(self, amqp_url: str, count: int, *, results: str, hangs: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="chaos-workers-")
        self._command = [sys.executable, "-m", "chaos.worker"]
        self._arguments = [results, str(hangs)]
        self._env = os.environ | {"AMQP_URL": amqp_url.split(",", maxsplit=1)[0]}
        self._places: list[subprocess.Popen[bytes] | None] = [None] * count
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="staff", daemon=True)
        self._random = random.Random(13)

    @property
    def journals(self) -> list[Path]:
        return sorted(Path(self._folder.name).iterdir())

    def start(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            for place, process in enumerate(self._places):
                if process is None or process.poll() is not None:
                    journal = Path(self._folder.name) / f"worker-{place}.jsonl"
                    self._places[place] = subprocess.Popen(
                        [*self._command, str(journal), *self._arguments], env=self._env, cwd=ROOT,
                    )

    def kill(self) -> None:
        """Kill one of them, whatever it is doing."""
        running = [each for each in self._places if each is not None and each.poll() is None]
        if running:
            self._random.choice(running).send_signal(signal.SIGKILL)

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for each in self._places:
            if each is not None:
                each.kill()
                each.wait()
        self._folder.cleanup()


class TrackedHost(Host):
    """Asks for tracked jobs; workers of its own take the events, and their journals are its books."""

    def __init__(
        self, amqp_url: str, *, workers: int = 6, hangs: int = 3, delay: float = 0.0, one_shots: float = 25,
        recurring: float = 1, count: int = 5,
    ) -> None:
        """With a `delay`, results lie for up to so many seconds and then come shuffled, some of them twice."""
        super().__init__(amqp_url, one_shots=one_shots, recurring=recurring, cancels=0, count=count)
        self.runs = RunBooks()
        self._delay = delay
        # A result that is on its way is worth waiting for.
        self.policy = POLICY | {name: POLICY[name] + delay for name in ("start_timeout", "timeout")}
        self.staff = Staff(amqp_url, workers, results=MANGLED if delay else "schedule.commands", hangs=hangs)
        self._read: dict[Path, int] = {}
        self._held: list[tuple[float, bytes]] = []  # a heap
        self._mangled = not delay
        for name, work in (("finished", self._listen), *((("mangler", self._mangle),) if delay else ())):
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
        self.staff.start()

    def request(self, run_at: datetime, count: int = 0, **fields: object) -> Asked:
        return super().request(run_at, count, **{"run": self.policy} | fields)

    def close(self) -> None:
        super().close()
        self.staff.close()

    @property
    def mangled(self) -> bool:
        """Whether no result is held back, by us or in the queue before us."""
        return self._mangled

    # --- what the workers' journals tell, in place of a receiver of its own

    def _receive(self, connection: pika.BlockingConnection) -> None:
        while not self._stop.is_set():
            connection.process_data_events(0.1)
            for journal in self.staff.journals:
                self._catch_up(journal)

    def _catch_up(self, journal: Path) -> None:
        with journal.open("rb") as file:
            file.seek(self._read.get(journal, 0))
            for line in file:
                if line.endswith(b"\n"):  # what is being written is read the next time
                    self._read[journal] = self._read.get(journal, 0) + len(line)
                    with contextlib.suppress(ValueError):  # the last words of one that was killed
                        self._book(json.loads(line))

    def _book(self, line: dict[str, Any]) -> None:
        known = self.runs.attempts.setdefault(line["event_id"], {})
        if line["what"] == "begun":
            due, emitted = (datetime.fromisoformat(line[name]) for name in ("due_at", "emitted_at"))
            made = known.setdefault(line["attempt"], Made(emitted.timestamp()))
            made.begun.append(line["at"])
            if line["attempt"] == 1 or len(known) == 1:
                received = datetime.fromtimestamp(line["at"], tz=due.tzinfo)
                self.books.events.append(Event(line["event_id"], line["job_id"], due, emitted, received))
            return
        made = known[line["attempt"]]
        if line["what"] == "confirmed":
            made.confirmed.add(line["status"])
        elif line["status"] == "running":
            made.running.append(line["at"])
        else:
            made.said.append((line["at"], line))

    # --- how runs end

    def _listen(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        for method, _, body in channel.consume(FINISHED, inactivity_timeout=0.1):
            if self._stop.is_set():
                return
            if method is not None:
                event = json.loads(body)
                self.runs.finished.setdefault(event["event_id"], []).append((time.time(), event))
                channel.basic_ack(method.delivery_tag)

    # --- results that come late, twice and in any order

    def _mangle(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()  # without confirms, which would make it slower than the workers
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
