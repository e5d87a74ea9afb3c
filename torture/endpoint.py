"""Local HTTP endpoints for webhooks, a port for each way to answer; every call is recorded."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from torture.history import History

WAYS = ("ok", "slow", "hang", "500", "429", "410")
WAITS = {"slow": 2.0, "hang": 25.0}
CODES = {"500": 500, "429": 429, "410": 410}


class Endpoints:
    def __init__(self, history: History) -> None:
        stop = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with contextlib.suppress(ValueError):
                    content = json.loads(body)
                    how, _, number = self.path.strip("/").partition("/")
                    attempt = content.get("attempt") or (content.get("run") or {}).get("attempt")
                    record = history.add("call", how=how, n=number, event_id=content.get("id") or content.get("event_id"),
                                         attempt=int(attempt or 0))
                    stop.wait(WAITS.get(how, 0))
                    record["ended"] = time.time()
                    self.send_response(CODES.get(how, 200))
                    if how == "429":
                        self.send_header("Retry-After", "1")
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 200

            def handle_error(self, *_: object) -> None:
                """A client that closed the connection is not an error here."""

        self._stop = stop
        self._servers = {way: Server(("127.0.0.1", 0), Handler) for way in WAYS}
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, name="endpoint", daemon=True).start()

    def url(self, path: str) -> str:
        """Return the endpoint's URL for a behaviour, such as /slow/7."""
        return f"http://127.0.0.1:{self._servers[path.split('/')[1]].server_port}{path}"

    def close(self) -> None:
        self._stop.set()
        for server in self._servers.values():
            server.shutdown()
            server.server_close()
