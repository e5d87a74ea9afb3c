"""Sample work for the worker of `scheduler dev`: an unreliable endpoint and a slow command."""

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMAND = "sample-report"
_ATTEMPTS_NEEDED = 3
_MAX_BYTES = 1_000_000
_STOP_GRACE = "2"  # seconds: Ctrl-C need not wait until the sample command has ended
_SCRIPT = """
import sys, time
for table in ("customers", "invoices", "reminders", "payments", "refunds", "addresses", "audit", "totals"):
    print(f"reading {table} …", flush=True)
    time.sleep(1.5)
print("report written", file=sys.stderr)
"""


class _SandboxEndpoint(BaseHTTPRequestHandler):
    """/flaky succeeds at the third attempt of each event, /broken never, any other path at once."""

    attempts: Counter[str]

    def do_POST(self) -> None:
        """Respond to a webhook."""
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _MAX_BYTES))
        status, text = self._response(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _response(self, body: bytes) -> tuple[int, bytes]:
        if self.path == "/broken":
            return 500, b'{"error": "the crm has no table called customers"}'
        if self.path == "/flaky":
            try:
                event = str(json.loads(body)["event_id"])
            except (ValueError, TypeError, KeyError):
                event = ""
            self.attempts[event] += 1
            if self.attempts[event] < _ATTEMPTS_NEEDED:
                return 503, b'{"error": "busy, retry later"}'
        return 200, b'{"ok": true}'

    def log_message(self, *_: Any) -> None:
        """Log nothing: the console shows the responses."""


@contextmanager
def sandbox(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Serve the endpoint; yield its address, and the worker settings that allow the endpoint and the command.

    `folder` receives the commands file. The stack removes it, also after SIGKILL.
    """
    attempts: Counter[str] = Counter()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Sandbox", (_SandboxEndpoint,), {"attempts": attempts}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", _settings(folder)
    finally:
        server.shutdown()
        server.server_close()


def _settings(folder: Path) -> dict[str, str]:
    """Return the worker's settings; settings in the environment are kept."""
    allowed = os.environ.get("SCHEDULER_WEBHOOK_ALLOW")
    settings = {"SCHEDULER_WEBHOOK_ALLOW": f"{allowed},127.0.0.1" if allowed else "127.0.0.1"}
    if not os.environ.get("SCHEDULER_STOP_GRACE"):
        settings["SCHEDULER_STOP_GRACE"] = _STOP_GRACE
    if not os.environ.get("SCHEDULER_COMMANDS_FILE"):
        offered = folder / "commands.toml"
        # A list of strings has the same syntax in TOML and JSON.
        run = json.dumps([sys.executable, "-u", "-c", _SCRIPT])
        offered.write_text(f"[{COMMAND}]\nrun = {run}\nconcurrency = 2\n", encoding="utf-8")
        settings["SCHEDULER_COMMANDS_FILE"] = str(offered)
    return settings
