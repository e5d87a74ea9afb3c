"""The sample reminders of `scheduler dev`, requested and received as any host would: in plain AMQP."""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pika
from pika.exceptions import AMQPError

from scheduler.dev.sandbox import COMMAND
from scheduler.domain.errors import Unavailable

_REPLY = "amq.rabbitmq.reply-to"
_QUEUE = "mainapp_due"


@dataclass
class SampleJob:
    """A reminder, and what is expected of it."""

    name: str
    request: dict[str, Any]
    text: str
    first_after: float | None = None  # seconds to the first event; None when none is expected meanwhile
    every: float | None = None
    cancelled: bool = False
    ends: str | None = None  # what becomes of its runs, where a worker does its work
    id: str = field(default_factory=lambda: str(uuid4()))

    def expected(self, seconds: float) -> int:
        """Return how many events or ends of runs must have come after so many seconds, with one to spare."""
        if self.first_after is None or seconds < self.first_after + 1:
            return 0
        return 1 if self.every is None else 1 + int((seconds - self.first_after - 1) / self.every)


def samples(now: datetime, endpoint: str | None = None) -> list[SampleJob]:
    """Return the sample reminders; with an endpoint also work for a worker: webhooks and a command."""
    return [*_reminders(now), *(() if endpoint is None else _work(now, endpoint))]


def _work(now: datetime, endpoint: str) -> list[SampleJob]:
    """Return jobs whose work a worker does: one succeeds at its third try, one never, one writes as it goes."""
    soon = (now + timedelta(seconds=2)).isoformat()

    def hook(path: str) -> dict[str, Any]:
        return {"webhook": {"url": f"{endpoint}{path}"}}

    tries = {"max_attempts": 3, "delay": 2, "backoff": "fixed"}
    return [
        SampleJob("sample.webhook", {"name": "A webhook that is busy at first", "run_at": soon, "every": "PT15S",
                                  "target": hook("/flaky"), "run": tries},
               "every 15 seconds a webhook, which answers well at the third try", first_after=8, ends="succeeded"),
        SampleJob("sample.crm-sync", {"name": "CRM sync (broken)", "run_at": soon, "every": "PT45S",
                                   "target": hook("/broken"), "run": tries | {"max_attempts": 2}},
               "every 45 seconds a webhook that never answers well: see its dead runs in the console",
               first_after=6, ends="dead"),
        SampleJob("sample.report", {"name": "Nightly report", "run_at": soon, "every": "PT20S",
                                 "run": {"timeout": 60}, "target": {"command": {"name": COMMAND}}},
               "every 20 seconds a command that writes as it goes", first_after=14, ends="succeeded"),
    ]


def _reminders(now: datetime) -> list[SampleJob]:
    soon, later = now + timedelta(seconds=3), now + timedelta(seconds=2)
    return [
        SampleJob("sample.once", {"run_at": soon.isoformat(), "name": "Once",
                                "payload": {"say": "three seconds are over"}},
               "once, in 3 seconds", first_after=3),
        SampleJob("sample.every-5s", {"run_at": later.isoformat(), "every": "PT5S", "name": "Again and again",
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
    """A host application on a connection of its own."""

    def __init__(self, amqp_url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
        self._channel = self._connection.channel()
        self._replies: dict[str, dict[str, Any]] = {}
        self._channel.basic_consume(_REPLY, self._on_reply, auto_ack=True)
        self._finished = self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.queue_bind(self._finished, "schedule.events", "finished")
        self.seen: dict[str, list[float]] = defaultdict(list)
        self.ended: dict[str, list[str]] = defaultdict(list)
        self.job_types: dict[str, str] = {}

    def ask(self, sample: SampleJob) -> dict[str, Any]:
        """Send the sample's request, and its cancel if it has one, and return the answer to the first."""
        sent = [self._send("request", {"id": sample.id, "job_type": sample.name, **sample.request})]
        if sample.cancelled:  # at once: a sidecar that is slow to answer finds both
            sent.append(self._send("cancel", {"id": sample.id}))
        answer, *_ = [self._answer(each) for each in sent]
        return answer

    def events(self, seconds: float) -> Iterator[tuple[dict[str, Any], float]]:
        """Yield the ScheduleDue events of the next moments, each with its milliseconds of lateness."""
        try:
            for method, _, body in self._channel.consume(_QUEUE, inactivity_timeout=seconds):
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
        """Yield the ScheduleFinished events that have come."""
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

    def _send(self, key: str, body: dict[str, Any]) -> str:
        """Publish a command and return what its answer will be known by."""
        issued = datetime.now(UTC).isoformat()
        properties = pika.BasicProperties(
            content_type="application/json", delivery_mode=2, reply_to=_REPLY, correlation_id=issued
        )
        raw = json.dumps(body | {"issued_at": issued})
        self._channel.basic_publish("schedule.commands", key, raw, properties, mandatory=True)
        return issued

    def _answer(self, issued: str) -> dict[str, Any]:
        while issued not in self._replies:
            self._connection.process_data_events(time_limit=None)
        return self._replies.pop(issued)

    def _on_reply(self, _: Any, __: Any, properties: pika.BasicProperties, body: bytes) -> None:
        self._replies[properties.correlation_id] = json.loads(body)

    def close(self) -> None:
        with suppress(AMQPError):
            self._connection.close()
