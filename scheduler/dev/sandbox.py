"""Something for the worker of `scheduler dev` to do: an endpoint with moods, and a command that takes its time."""

import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMAND = "sample-report"
_TRIES_NEEDED = 3
_LARGEST = 1_000_000
_SCRIPT = """
import sys, time
for table in ("customers", "invoices", "reminders", "payments", "refunds", "addresses", "audit", "totals"):
    print(f"reading {table} …", flush=True)
    time.sleep(1.5)
print("report written", file=sys.stderr)
"""


class _SandboxEndpoint(BaseHTTPRequestHandler):
    """/flaky answers well at the third try of each event, /broken never, everything else at once."""

    tries: Counter[str]

    def do_POST(self) -> None:
        """Answer a webhook."""
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _LARGEST))
        status, text = self._answer(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _answer(self, body: bytes) -> tuple[int, bytes]:
        if self.path == "/broken":
            return 500, b'{"error": "the crm has no table called customers"}'
        if self.path == "/flaky":
            try:
                event = str(json.loads(body)["event_id"])
            except (ValueError, TypeError, KeyError):
                event = ""
            self.tries[event] += 1
            if self.tries[event] < _TRIES_NEEDED:
                return 503, b'{"error": "busy, try again"}'
        return 200, b'{"ok": true}'

    def log_message(self, *_: Any) -> None:
        """Say nothing: the console shows what was answered."""


@contextmanager
def sandbox() -> Iterator[tuple[str, dict[str, str]]]:
    """Serve the endpoint; yield its address, and the settings by which a worker calls it and has the command."""
    tries: Counter[str] = Counter()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Moods", (_SandboxEndpoint,), {"tries": tries}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory(prefix="scheduler-dev-") as folder:
            yield f"http://127.0.0.1:{server.server_port}", _settings(Path(folder))
    finally:
        server.shutdown()
        server.server_close()


def _settings(folder: Path) -> dict[str, str]:
    """Return the worker's settings; what the environment says already stays."""
    allowed = os.environ.get("SCHEDULER_WEBHOOK_ALLOW")
    made = {"SCHEDULER_WEBHOOK_ALLOW": f"{allowed},127.0.0.1" if allowed else "127.0.0.1"}
    if not os.environ.get("SCHEDULER_COMMANDS_FILE"):
        offered = folder / "commands.toml"
        # A list of strings is written alike in TOML and JSON.
        run = json.dumps([sys.executable, "-u", "-c", _SCRIPT])
        offered.write_text(f"[{COMMAND}]\nrun = {run}\nconcurrency = 2\n", encoding="utf-8")
        made["SCHEDULER_COMMANDS_FILE"] = str(offered)
    return made
