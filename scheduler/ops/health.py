"""/metrics, /livez and /readyz over HTTP, and the state behind them."""

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from scheduler.domain.times import rfc3339

STUCK_AFTER = 60.0


class Health:
    """What the process knows of itself: when its loop last turned, and which dependencies are missing."""

    def __init__(self, *dependencies: str) -> None:
        self._turned = time.monotonic()
        self._lock = threading.Lock()
        self._missing: dict[str, tuple[str, datetime]] = {}
        for name in dependencies:
            self.missing(name, "not connected yet")

    def turn(self) -> None:
        """Say that the loop goes round."""
        self._turned = time.monotonic()

    def missing(self, dependency: str, why: str) -> None:
        """Note a dependency as down; the time of the first note stays."""
        with self._lock:
            since = self._missing.get(dependency, ("", datetime.now(UTC)))[1]
            self._missing[dependency] = (why, since)

    def found(self, dependency: str) -> None:
        """Note a dependency as up."""
        with self._lock:
            self._missing.pop(dependency, None)

    def live(self) -> tuple[bool, dict[str, object]]:
        age = time.monotonic() - self._turned
        return age < STUCK_AFTER, {"loop_turned_seconds_ago": round(age, 3)}

    def ready(self) -> tuple[bool, dict[str, object]]:
        with self._lock:
            missing = {
                name: {"problem": why, "since": rfc3339(since)}
                for name, (why, since) in self._missing.items()
            }
        return not missing, {"ready": not missing, "missing": missing}


def serve(health: Health, host: str, port: int) -> int:
    """Serve metrics and health in a thread of their own; return the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(), CONTENT_TYPE_LATEST)
            elif path in ("/livez", "/readyz"):
                check: Callable[[], tuple[bool, dict[str, object]]]
                check = health.live if path == "/livez" else health.ready
                fine, answer = check()
                self._answer(200 if fine else 503, json.dumps(answer).encode() + b"\n", "application/json")
            else:
                self._answer(404, b"/metrics, /livez, /readyz\n", "text/plain")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are not news."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server.server_address[1]
