"""Serve /metrics, /livez and /readyz over HTTP."""

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
CheckResult = tuple[bool, dict[str, object]]
Check = Callable[[], CheckResult]


class HealthPart:
    """One part of a process: the time of its loop's last iteration, and the dependencies that are down."""

    def __init__(self, health: "Health", dependencies: Iterable[str], *, loops: bool) -> None:
        self._health = health
        self._clock = health.clock
        self.loops = loops
        self.turned = self._clock()
        self.lacks: dict[str, tuple[str, datetime]] = {}
        self._seen: set[str] = set()
        for name in dependencies:
            self.missing(name, "not connected yet")

    def turn(self) -> None:
        """Record one iteration of the loop."""
        self.turned = self._clock()

    def missing(self, dependency: str, why: str) -> None:
        """Record that a dependency is down; repeated calls keep the first time."""
        with self._health.lock:
            before = self.lacks.get(dependency)
            since = before[1] if before else datetime.now(UTC)
            self.lacks[dependency] = (without_secrets(why), since)
            metrics.dependency_up.labels(dependency).set(0)
            if before is None and dependency in self._seen:
                metrics.dependency_losses.labels(dependency).inc()

    def found(self, dependency: str) -> None:
        """Record that a dependency is up."""
        # Called in every iteration of a loop: the usual case takes no lock.
        if dependency in self._seen and dependency not in self.lacks:
            return
        with self._health.lock:
            self._seen.add(dependency)
            self.lacks.pop(dependency, None)
            if not any(dependency in part.lacks for part in self._health.parts):
                metrics.dependency_up.labels(dependency).set(1)


class Health:
    """The state of a process: its loops and their dependencies."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.parts: list[HealthPart] = []

    def part(self, *dependencies: str, loops: bool = True) -> HealthPart:
        """Add a part with its dependencies; only parts that loop count for liveness."""
        part = HealthPart(self, dependencies, loops=loops)
        self.parts.append(part)
        return part

    @property
    def checks(self) -> dict[str, Check]:
        """The health checks by path."""
        return {"/livez": self.live, "/readyz": self.ready}

    def live(self) -> CheckResult:
        """Return whether every loop still iterates, regardless of its dependencies."""
        age = max((self.clock() - part.turned for part in self.parts if part.loops), default=0.0)
        alive = age < STUCK_AFTER
        return alive, {"live": alive, "loop_turned_seconds_ago": round(age, 3)}

    def ready(self) -> CheckResult:
        """Return whether all dependencies are up, with the ones that are down and since when."""
        with self.lock:
            lacks = [(since, name, why) for part in self.parts for name, (why, since) in part.lacks.items()]
        missing: dict[str, dict[str, str]] = {}
        for since, name, why in sorted(lacks):  # the first part that noticed it counts
            missing.setdefault(name, {"problem": why, "since": rfc3339(since)})
        return not missing, {"ready": not missing, "missing": missing}


def serve(health: Health, host: str, port: int) -> int:
    """Serve metrics and health in a separate thread; return the port."""
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
    """Serve metrics and the checks in a separate thread."""

    class HealthHandler(BaseHTTPRequestHandler):
        timeout = 10  # a silent client does not keep its thread

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            if path == "/metrics":
                self._respond(200, generate_latest(), CONTENT_TYPE_LATEST)
            elif path in checks:
                passed, response = checks[path]()
                self._respond(200 if passed else 503, json.dumps(response).encode() + b"\n", "application/json")
            else:
                self._respond(404, b"/metrics, /livez, /readyz\n", "text/plain")

        do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

        def _respond(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Do not log scrapes."""

    class HealthServer(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Do not log scrapers that close the connection."""

    server = HealthServer(listening.getsockname()[:2], HealthHandler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
