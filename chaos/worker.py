"""A worker process of the host that may be killed: handle events of tracked jobs and report.

It writes each action to its journal in advance. The journal survives a kill and is the host's record. The outcome
depends only on the event and the attempt, so every worker that handles it reports the same.
"""

import json
import os
import random
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pika
from pika.exceptions import AMQPError

HEARTBEAT = 2.0
RETRY_IN = 0.4
SNOOZE = 0.8
LATE = 3 * HEARTBEAT


class Worker:
    """Handles one event at a time."""

    def __init__(self, amqp_url: str, journal: Path, results: str, hangs: int) -> None:
        """Report to the exchange `results`; `hangs` per cent of the attempts hang and are reported too late."""
        self._url = amqp_url
        self._journal = journal.open("a", buffering=1, encoding="utf-8")
        self._results = results
        self._hangs = hangs
        self._pending_reports: list[tuple[float, dict[str, Any]]] = []  # time and body
        self._random = random.Random(os.getpid())

    def run(self) -> None:
        """Serve the queue forever, and reconnect when the broker is unavailable."""
        while True:
            try:
                self._serve()
            except (AMQPError, OSError):
                time.sleep(0.3)

    def _serve(self) -> None:
        parameters = pika.URLParameters(self._url)
        parameters.heartbeat, parameters.socket_timeout, parameters.stack_timeout = 10, 5, 8
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=1)
        for method, _, body in channel.consume("mainapp_due", inactivity_timeout=0.05):
            self._publish(channel)
            if method is not None:
                self._handle(channel, method.delivery_tag, json.loads(body))

    def _handle(self, channel: pika.adapters.blocking_connection.BlockingChannel, tag: int, event: dict[str, Any]) -> None:
        about = {"event_id": event["event_id"], "attempt": event["run"]["attempt"]}
        self._note("started", about | {name: event[name] for name in ("job_id", "due_at", "emitted_at")})
        self._report(channel, about, "running", heartbeat=HEARTBEAT)
        # Acknowledge at the start: from here on only a missed heartbeat shows that this process has died.
        channel.basic_ack(tag)
        channel.connection.sleep(self._random.uniform(0.0, 0.15))
        lot = zlib.crc32(f"{about['event_id']}/{about['attempt']}".encode()) % 100
        if lot < self._hangs:
            outcome = ("succeeded", {}) if lot % 3 == 0 else ("failed", {"error": "too late"})
            self._report(channel, about, outcome[0], after=LATE, **outcome[1])
        elif lot < self._hangs + 10:
            self._report(channel, about, "failed", error="no")
        elif lot < self._hangs + 15:
            self._report(channel, about, "failed", error="no", retry_in=RETRY_IN)
        elif lot < self._hangs + 20:
            self._report(channel, about, "snoozed", retry_in=SNOOZE)
        else:
            self._report(channel, about, "succeeded", output={"attempt": about["attempt"]})

    def _report(
        self, channel: pika.adapters.blocking_connection.BlockingChannel, about: dict[str, Any], status: str,
        after: float = 0.0, **fields: Any,
    ) -> None:
        self._pending_reports.append((time.time() + after, about | {"status": status} | fields))
        self._publish(channel)

    def _publish(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        """Publish the reports that are due; unconfirmed ones are published again."""
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        for pending in [pending for pending in self._pending_reports if pending[0] <= time.time()]:
            self._note("reported", pending[1])
            channel.basic_publish(self._results, "result", json.dumps(pending[1]).encode(), properties, mandatory=True)
            self._note("confirmed", pending[1])
            self._pending_reports.remove(pending)

    def _note(self, what: str, about: dict[str, Any]) -> None:
        self._journal.write(json.dumps({"at": time.time(), "what": what} | about) + "\n")


if __name__ == "__main__":
    Worker(os.environ["AMQP_URL"], Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])).run()
