"""A worker of the host's, as a process that may be killed: takes events of tracked jobs, does them, and reports.

What it does it writes into its journal first, which outlives it: the host's own books. What becomes of an attempt
hangs on the event and the attempt alone, so that whoever gets it once more does the same.
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
    """Takes one event at a time."""

    def __init__(self, amqp_url: str, journal: Path, results: str, hangs: int) -> None:
        """Report to the exchange `results`; of a hundred attempts so many hang and are reported much too late."""
        self._url = amqp_url
        self._journal = journal.open("a", buffering=1, encoding="utf-8")
        self._results = results
        self._hangs = hangs
        self._unsaid: list[tuple[float, dict[str, Any]]] = []  # when it is to be said, and what
        self._random = random.Random(os.getpid())

    def run(self) -> None:
        """Serve the queue for ever, and connect again whenever the broker goes away."""
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
            self._say(channel)
            if method is not None:
                self._take(channel, method.delivery_tag, json.loads(body))

    def _take(self, channel: pika.adapters.blocking_connection.BlockingChannel, tag: int, event: dict[str, Any]) -> None:
        about = {"event_id": event["event_id"], "attempt": event["run"]["attempt"]}
        self._note("begun", about | {name: event[name] for name in ("job_id", "due_at", "emitted_at")})
        self._report(channel, about, "running", heartbeat=HEARTBEAT)
        # Acknowledged when it begins: from here on only the heartbeat tells that this process has died.
        channel.basic_ack(tag)
        channel.connection.sleep(self._random.uniform(0.0, 0.15))
        lot = zlib.crc32(f"{about['event_id']}/{about['attempt']}".encode()) % 100
        if lot < self._hangs:
            said = ("succeeded", {}) if lot % 3 == 0 else ("failed", {"error": "much too late"})
            self._report(channel, about, said[0], after=LATE, **said[1])
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
        self._unsaid.append((time.time() + after, about | {"status": status} | fields))
        self._say(channel)

    def _say(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        """Publish what is to be said by now; what the broker does not confirm is said again."""
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        for each in [each for each in self._unsaid if each[0] <= time.time()]:
            self._note("said", each[1])
            channel.basic_publish(self._results, "result", json.dumps(each[1]).encode(), properties, mandatory=True)
            self._note("confirmed", each[1])
            self._unsaid.remove(each)

    def _note(self, what: str, about: dict[str, Any]) -> None:
        self._journal.write(json.dumps({"at": time.time(), "what": what} | about) + "\n")


if __name__ == "__main__":
    Worker(os.environ["AMQP_URL"], Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])).run()
