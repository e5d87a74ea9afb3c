"""/metrics, /livez and /readyz over HTTP, and the state behind them."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from scheduler.domain.errors import Misconfigured
from scheduler.domain.instants import rfc3339
from scheduler.ops import metrics
from scheduler.ops.logs import without_secrets

STUCK_AFTER = 60.0
Verdict = tuple[bool, dict[str, object]]
Check = Callable[[], Verdict]


class HealthPart:
    """One part of a process: when its loop last turned, if it has one, and which dependencies it misses."""

    def __init__(self, health: "Health", dependencies: Iterable[str], *, loops: bool) -> None:
        self._health = health
        self._clock = health.clock
        self.loops = loops
        self.turned = self._clock()
        self.lacks: dict[str, tuple[str, datetime]] = {}
        self._known: set[str] = set()
        for name in dependencies:
            self.missing(name, "not connected yet")

    def turn(self) -> None:
        """Say that the loop goes round."""
        self.turned = self._clock()

    def missing(self, dependency: str, why: str) -> None:
        """Note a dependency as down; the time of the first note stays."""
        with self._health.lock:
            before = self.lacks.get(dependency)
            since = before[1] if before else datetime.now(UTC)
            self.lacks[dependency] = (without_secrets(why), since)
            metrics.dependency_up.labels(dependency).set(0)
            if before is None and dependency in self._known:
                metrics.dependency_losses.labels(dependency).inc()

    def found(self, dependency: str) -> None:
        """Note a dependency as up."""
        # Called on every turn of a loop: the usual case takes no lock.
        if dependency in self._known and dependency not in self.lacks:
            return
        with self._health.lock:
            self._known.add(dependency)
            self.lacks.pop(dependency, None)
            if not any(dependency in part.lacks for part in self._health.parts):
                metrics.dependency_up.labels(dependency).set(1)


class Health:
    """What the process knows of itself: each of its loops, and what any of them misses."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.parts: list[HealthPart] = []

    def part(self, *dependencies: str, loops: bool = True) -> HealthPart:
        """Add a part that needs these; one that does not loop says nothing about life."""
        part = HealthPart(self, dependencies, loops=loops)
        self.parts.append(part)
        return part

    @property
    def checks(self) -> dict[str, Check]:
        """What is asked of it, by path."""
        return {"/livez": self.live, "/readyz": self.ready}

    def live(self) -> Verdict:
        """Tell whether every loop still turns; what they depend on does not matter here."""
        age = max((self.clock() - part.turned for part in self.parts if part.loops), default=0.0)
        alive = age < STUCK_AFTER
        return alive, {"live": alive, "loop_turned_seconds_ago": round(age, 3)}

    def ready(self) -> Verdict:
        """Tell whether the process can work, and what is missing since when if it cannot."""
        with self.lock:
            lacks = [(since, name, why) for part in self.parts for name, (why, since) in part.lacks.items()]
        missing: dict[str, dict[str, str]] = {}
        for since, name, why in sorted(lacks):  # of several parts the first that noticed
            missing.setdefault(name, {"problem": why, "since": rfc3339(since)})
        return not missing, {"ready": not missing, "missing": missing}


def serve(health: Health, host: str, port: int) -> int:
    """Serve metrics and health in a thread of their own; return the port."""
    listening = _listen(host, port)
    _serve_on(listening, health.checks)
    return int(listening.getsockname()[1])


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(5)
    except OSError as error:
        listening.close()
        raise Misconfigured(
            f"METRICS_HOST {host}, METRICS_PORT {port}: cannot listen there: {error.strerror or error}"
        ) from None
    return listening


def _serve_on(listening: socket.socket, checks: Mapping[str, Check]) -> None:
    """Serve metrics and the checks on a thread of its own."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that says nothing does not keep its thread

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(), CONTENT_TYPE_LATEST)
            elif path in checks:
                fine, answer = checks[path]()
                self._answer(200 if fine else 503, json.dumps(answer).encode() + b"\n", "application/json")
            else:
                self._answer(404, b"/metrics, /livez, /readyz\n", "text/plain")

        do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are not news."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A scraper that hangs up is not news either."""

    server = Server(listening.getsockname()[:2], Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
