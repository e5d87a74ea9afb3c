"""The sample reminders of `scheduler dev`, requested and received over plain AMQP, like any host does."""

import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pika
from pika.exceptions import AMQPError

from scheduler.dev.sandbox import COMMAND
from scheduler.domain.errors import Unavailable
from scheduler.domain.names import COMMANDS_EXCHANGE, EVENTS_EXCHANGE, due_address

_REPLY = "amq.rabbitmq.reply-to"


@dataclass
class SampleJob:
    """A reminder and its expected events."""

    name: str
    request: dict[str, Any]
    text: str
    first_after: float | None = None  # seconds to the first event; None if no event is expected
    every: float | None = None
    cancelled: bool = False
    ends: str | None = None  # final status of its runs, for a job with a target
    id: str = field(default_factory=lambda: str(uuid4()))

    def expected(self, seconds: float) -> int:
        """Return the minimum number of events or finished runs after `seconds`, with one second of tolerance."""
        if self.first_after is None or seconds < self.first_after + 1:
            return 0
        return 1 if self.every is None else 1 + int((seconds - self.first_after - 1) / self.every)


def samples(now: datetime, endpoint: str | None = None) -> list[SampleJob]:
    """Return the sample reminders; with an endpoint also jobs for a worker: webhooks and a command."""
    return [*_reminders(now), *(() if endpoint is None else _work(now, endpoint))]


def _work(now: datetime, endpoint: str) -> list[SampleJob]:
    """Return jobs for a worker: one succeeds at its third attempt, one never, one writes output as it runs."""
    soon = (now + timedelta(seconds=2)).isoformat()

    def hook(path: str) -> dict[str, Any]:
        return {"webhook": {"url": f"{endpoint}{path}"}}

    policy = {"max_attempts": 3, "delay": 2, "backoff": "fixed"}
    return [
        SampleJob("sample.webhook", {"name": "A webhook that is busy at first", "run_at": soon, "every": "PT15S",
                                  "target": hook("/flaky"), "run": policy},
               "every 15 seconds a webhook, which succeeds at the third attempt", first_after=8, ends="succeeded"),
        SampleJob("sample.crm-sync", {"name": "CRM sync (broken)", "run_at": soon, "every": "PT45S",
                                   "target": hook("/broken"), "run": policy | {"max_attempts": 2}},
               "every 45 seconds a webhook that always fails: see its dead runs in the console",
               first_after=6, ends="dead"),
        SampleJob("sample.report", {"name": "Nightly report", "run_at": soon, "every": "PT20S",
                                 "run": {"timeout": 60}, "target": {"command": {"name": COMMAND}}},
               "every 20 seconds a command that writes output as it runs", first_after=14, ends="succeeded"),
    ]


def _reminders(now: datetime) -> list[SampleJob]:
    soon, later = now + timedelta(seconds=3), now + timedelta(seconds=2)
    return [
        SampleJob("sample.once", {"run_at": soon.isoformat(), "name": "Once",
                                "payload": {"say": "three seconds have passed"}},
               "once, in 3 seconds", first_after=3),
        SampleJob("sample.every-5s", {"run_at": later.isoformat(), "every": "PT5S", "name": "Every five seconds",
                                    "payload": {"say": "again"}},
               "every 5 seconds", first_after=2, every=5),
        SampleJob("sample.weekdays",
                  {"cron": "0 9 * * 1-5", "timezone": "America/New_York", "name": "Good morning",
                                   "payload": {"say": "good morning"}},
               "weekdays at 09:00 in New York"),
        SampleJob("sample.cancelled", {"run_at": (now + timedelta(seconds=12)).isoformat()},
               "in 12 seconds, and cancelled at once", cancelled=True),
    ]


class SampleHost:
    """A host application with its own connection and queues. It never consumes mainapp_due, the user's queue."""

    def __init__(self, amqp_url: str, *, all_events: bool) -> None:
        """Connect. With `all_events` it also receives a copy of the events that go to mainapp_due."""
        # Two `scheduler dev` on one broker must not receive each other's samples.
        self._route = f"samples.{secrets.token_hex(4)}"
        self._connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
        self._channel = self._connection.channel()
        self._replies: dict[str, dict[str, Any]] = {}
        self._channel.basic_consume(_REPLY, self._on_reply, auto_ack=True)
        keys = [due_address(route, None)[1] for route in (self._route, *([None] if all_events else []))]
        self._due = self._own_queue(*keys)
        self._finished = self._own_queue("finished")
        self.seen: dict[str, list[float]] = defaultdict(list)
        self.ended: dict[str, list[str]] = defaultdict(list)
        self.job_types: dict[str, str] = {}

    def request(self, sample: SampleJob) -> dict[str, Any]:
        """Send the sample's request, and its cancel if it has one; return the reply to the request."""
        # A job with a target has no route: a worker executes it.
        route = {} if "target" in sample.request else {"route": self._route}
        body = {"id": sample.id, "job_type": sample.name, **route, **sample.request}
        sent = [self._send("request", body)]
        if sample.cancelled:  # at once, so that a slow sidecar receives both
            sent.append(self._send("cancel", {"id": sample.id}))
        reply, *_ = [self._reply_to(issued) for issued in sent]
        return reply

    def cancel(self, jobs: Iterable[SampleJob]) -> None:
        """Cancel the jobs, so that none remains pending on a user's server."""
        try:
            for issued in [self._send("cancel", {"id": job.id}) for job in jobs]:
                self._reply_to(issued)
        except AMQPError as error:
            raise Unavailable(f"RabbitMQ: {error!r}") from error

    def events(self, seconds: float) -> Iterator[tuple[dict[str, Any], float]]:
        """Yield the next ScheduleDue events with their lateness in milliseconds."""
        try:
            for method, _, body in self._channel.consume(self._due, inactivity_timeout=seconds):
                if method is None:
                    return
                event = json.loads(body)
                due, emitted = (datetime.fromisoformat(event[name]) for name in ("due_at", "emitted_at"))
                late = (emitted - due) / timedelta(milliseconds=1)
                self.seen[event["job_id"]].append(late)
                self.job_types[event["job_id"]] = event["job_type"]
                self._channel.basic_ack(method.delivery_tag)
                yield event, late
        except AMQPError as error:
            raise Unavailable(f"RabbitMQ: {error!r}") from error

    def ends(self) -> Iterator[dict[str, Any]]:
        """Yield the received ScheduleFinished events."""
        try:
            while True:
                method, _, body = self._channel.basic_get(self._finished, auto_ack=True)
                if method is None:
                    return
                event = json.loads(body)
                self.ended[event["job_id"]].append(event["status"])
                yield event
        except AMQPError as error:
            raise Unavailable(f"RabbitMQ: {error!r}") from error

    def _own_queue(self, *keys: str) -> str:
        """Declare an exclusive queue, bound to these routing keys of events."""
        queue = str(self._channel.queue_declare("", exclusive=True).method.queue)
        for key in keys:
            self._channel.queue_bind(queue, EVENTS_EXCHANGE, key)
        return queue

    def _send(self, key: str, body: dict[str, Any]) -> str:
        """Publish a command and return the correlation id of its reply."""
        issued = datetime.now(UTC).isoformat()
        properties = pika.BasicProperties(
            content_type="application/json", delivery_mode=2, reply_to=_REPLY, correlation_id=issued
        )
        raw = json.dumps(body | {"issued_at": issued})
        self._channel.basic_publish(COMMANDS_EXCHANGE, key, raw, properties, mandatory=True)
        return issued

    def _reply_to(self, issued: str) -> dict[str, Any]:
        while issued not in self._replies:
            self._connection.process_data_events(time_limit=None)
        return self._replies.pop(issued)

    def _on_reply(self, _: Any, __: Any, properties: pika.BasicProperties, body: bytes) -> None:
        self._replies[properties.correlation_id] = json.loads(body)

    def close(self) -> None:
        with suppress(AMQPError):
            self._connection.close()
