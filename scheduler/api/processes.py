"""Several processes of the API behind one address.

The one that was started takes no requests itself. It listens, hands the socket to the others, starts another in
the place of one that dies, and tells the metrics and the health of all as if they were one process.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from scheduler.api.keys import keys
from scheduler.api.limits import SharedBuckets
from scheduler.api.server import ApiServer, listen
from scheduler.domain.errors import Misconfigured
from scheduler.ops import health, merging
from scheduler.ops.logs import get_logger
from scheduler.runtime import EX_CONFIG, EX_UNAVAILABLE, Stop, backoff
from scheduler.settings import Settings

log = get_logger(__name__)

_WELL_SECONDS = 60.0  # who has lived so long was well: its end is not one of a row
_ANSWER_SECONDS = 3.0  # that a process has to tell its metrics or its health
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a process gets from the one that started it: file descriptors, and the port that all are asked at."""

    listening: int
    metrics: int
    buckets: int
    lifeline: int
    metrics_port: int

    def __str__(self) -> str:
        return ",".join(map(str, astuple(self)))

    @classmethod
    def read(cls, text: str) -> "Inherited":
        """Read what `str` has written."""
        return cls(*map(int, text.split(",")))

    def leave_with_the_starter(self) -> None:
        """Stop this process when the one that started it is gone, however it went: its end of the pipe closes."""
        def wait() -> None:
            os.read(self.lifeline, 1)
            os.kill(os.getpid(), 15)

        threading.Thread(target=wait, name="lifeline", daemon=True).start()


class Place:
    """One of the processes, or who comes after it."""

    def __init__(self) -> None:
        self.asked_at = health.listen("127.0.0.1", 0)  # known before the process lives, and outlives it
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0
        self._told: tuple[int, merging.Families] = (0, {})
        self._lost: merging.Families = {}
        self._silent: tuple[int, float] | None = None  # which process has not answered, and since when

    def keep(self, stop: Stop, inherited: Inherited) -> int:
        """Have a process here until the stop, or until one says that it is misconfigured; return its exit code."""
        delays = backoff()
        while True:
            began = time.monotonic()
            code = self._one(stop, inherited)
            if stop or code == EX_CONFIG:
                stop.set()
                return code
            log.warning("a process of the API has ended: starting another", code=code,
                        do="look for what it logged last; -9 may mean that there was no memory left")
            if time.monotonic() - began > _WELL_SECONDS:
                delays = backoff()
            stop.wait(next(delays))

    def _one(self, stop: Stop, inherited: Inherited) -> int:
        """Have one process here until it ends, and return its exit code."""
        with self._lock:
            if stop:
                return 0
            self._number += 1
            try:
                self._process = _start(inherited)
            except OSError as error:  # no memory, or too many processes: that may pass
                log.warning("a process of the API cannot be started", problem=str(error), do="check the limits")
                return EX_UNAVAILABLE
        return self._process.wait()

    def end(self) -> None:
        """Ask the process to stop."""
        with self._lock:
            if self._process is not None:
                self._process.terminate()

    def ask(self, path: str) -> tuple[int, str]:
        """Return what the process answers; raise OSError where it does not."""
        port, number = self.asked_at.getsockname()[1], self._number
        try:
            with _direct.open(f"http://127.0.0.1:{port}{path}", timeout=_ANSWER_SECONDS) as answer:
                found = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                found = error.code, error.read().decode()
        except OSError:
            if self._silent is None or self._silent[0] != number:
                self._silent = (number, time.monotonic())
            raise
        self._silent = None
        return found

    @property
    def stuck(self) -> bool:
        """Whether the process has not answered for so long that it never will."""
        silent = self._silent
        return silent is not None and time.monotonic() - silent[1] > health.STUCK_AFTER

    def metrics(self) -> merging.Families:
        """Return what was counted here, also by those who were here before; what one counted last goes with it."""
        number = self._number
        try:
            _, text = self.ask("/metrics")
        except OSError:
            return merging.merged((self._lost, merging.counted(self._told[1])))
        with self._lock:
            if number != self._told[0]:
                self._lost = merging.merged((self._lost, merging.counted(self._told[1])))
            self._told = (number, merging.read(text))
            return merging.merged((self._told[1], self._lost))


class Processes:
    """All of them."""

    def __init__(self, settings: Settings, stop: Stop) -> None:
        """Listen; raise Misconfigured where that is not possible, or where the processes would have no key."""
        keys(settings)
        self._stop = stop
        self._listening = listen(settings.api_host, settings.api_port)
        self._metrics = health.listen(settings.metrics_host, settings.metrics_port)
        self._places = [Place() for _ in range(settings.api_processes)]
        self._asking = ThreadPoolExecutor(len(self._places))

    def run(self) -> None:
        """Have them serve until the stop; raise Misconfigured where one says so of its settings."""
        health.serve_on(self._metrics, {"/livez": self.live, "/readyz": self.ready}, self.metrics)
        port = int(self._metrics.getsockname()[1])
        log.info("started", role="api", processes=len(self._places), metrics_port=port)
        buckets = SharedBuckets.make()
        reader, writer = os.pipe()  # the writer is never written to: it closes when this process ends
        ends = [partial(place.keep, self._stop, Inherited(
            self._listening.fileno(), place.asked_at.fileno(), buckets, reader, port)) for place in self._places]
        with ThreadPoolExecutor(len(ends), "keeping") as threads:
            kept = [threads.submit(end) for end in ends]
            while not self._stop.wait(3600.0):
                pass
            for place in self._places:
                place.end()
            codes = [each.result() for each in kept]
        os.close(writer)
        if EX_CONFIG in codes:
            raise Misconfigured("a process of the API says that its settings are wrong; its own line says which")

    def metrics(self) -> bytes:
        """Return the metrics of all as those of one."""
        parts = list(self._asking.map(Place.metrics, self._places))
        return merging.written(merging.merged(parts)).encode()

    def live(self) -> health.Verdict:
        """Tell whether none is stuck; one that does not answer may only just have been started."""
        answers = self._ask_all("/livez")
        stuck = any(status == HTTPStatus.SERVICE_UNAVAILABLE for status, _ in answers)
        alive = not stuck and not any(place.stuck for place in self._places)
        return alive, {"live": alive, "processes": [answer for _, answer in answers]}

    def ready(self) -> health.Verdict:
        """Tell whether every process can work, and what is missing where one cannot."""
        missing: dict[str, Any] = {}
        for status, answer in self._ask_all("/readyz"):
            if status != HTTPStatus.OK:
                missing |= answer.get("missing") or {"process": answer}
        return not missing, {"ready": not missing, "missing": missing}

    def _ask_all(self, path: str) -> Sequence[tuple[int, dict[str, Any]]]:
        def ask(place: Place) -> tuple[int, dict[str, Any]]:
            try:
                status, text = place.ask(path)
                return status, json.loads(text)
            except (OSError, ValueError) as error:
                return 0, {"problem": f"does not answer: {error}"}

        return list(self._asking.map(ask, self._places))


def _start(inherited: Inherited) -> "subprocess.Popen[bytes]":
    """Start a process that has what it needs of ours open, and hears no signal of a terminal."""
    return subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "scheduler", "api", "--inherited", str(inherited)], start_new_session=True,
        pass_fds=astuple(inherited)[:4],
    )


def server(inherited: Inherited) -> Callable[[Settings, Stop, health.HealthPart], ApiServer]:
    """Return what makes the server of a process that is one of several."""
    def make(settings: Settings, stop: Stop, part: health.HealthPart) -> ApiServer:
        listening = socket.socket(fileno=inherited.listening)
        return ApiServer(settings, stop, part, listening, SharedBuckets(inherited.buckets))

    return make


def asked_at(inherited: Inherited) -> health.AskedAt:
    """Return where such a process tells its metrics."""
    return health.AskedAt(socket.socket(fileno=inherited.metrics), inherited.metrics_port)
