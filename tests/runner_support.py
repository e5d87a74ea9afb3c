"""A Runner in a thread, as tests of handlers use it."""

import json
import queue
import threading
from uuid import uuid4

from pydantic import BaseModel
from support import DEADLINE, until

from scheduler.client import Handlers, Runner

FAST = (0.05, 0.05)


class Reminder(BaseModel):
    invoice: int


def due(job_type="invoice.reminder", **payload):
    return {
        "event_id": str(uuid4()), "job_id": str(uuid4()), "job_type": job_type, "payload": payload,
        "due_at": "2026-12-01T08:00:00.000000Z", "emitted_at": "2026-12-01T08:00:00.004112Z",
        "occurrence": 1, "missed": 0, "next_run_at": None, "a_field_of_the_future": 1,
    }


class Running:
    """A runner in a thread, with handlers that a test can talk to."""

    def __init__(self, url, host, **options):
        self.url, self.host, self.options = url, host, {"delays": FAST} | options
        self.handlers = Handlers()
        self.seen = queue.SimpleQueue()
        self.runner = None

    def start(self):
        self.runner = Runner(self.url, handlers=self.handlers, **self.options)
        self.thread = threading.Thread(target=self.runner.run, daemon=True)
        self.thread.start()
        assert self.runner.ready.wait(DEADLINE)
        return self

    def emit(self, event):
        self.host.publish("mainapp_due", event, exchange="", message_id=event["event_id"], type="ScheduleDue")
        return event

    def stop(self):
        if self.runner is not None:
            self.runner.stop()
            self.thread.join(DEADLINE)
            assert not self.thread.is_alive()

    def depth(self, name):
        return self.host.channel.queue_declare(name, passive=True).method.message_count

    def consumers(self, name):
        return self.host.channel.queue_declare(name, passive=True).method.consumer_count

    def results(self, *statuses):
        """Take results from the sidecar's queue until there are so many with one of these statuses."""
        found = []

        def enough():
            body = json.loads(self.host.get("scheduler_results")[2])
            found.extend([body] if body["status"] in statuses else [])
            return found

        return until(enough, f"a result: {statuses}")[0]


def tracked(event=None, attempt=1, **fields):
    """Return the event of an attempt at a tracked job."""
    run = {"attempt": attempt, "attempts_left": 2, "max_attempts": 5, "deadline": "2026-12-01T09:00:00Z"}
    return (event or due(**fields)) | {"run": run}
