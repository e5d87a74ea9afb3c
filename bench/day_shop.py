"""The hosts of `bench.day`, as separate processes: one requests a shop's reminders, one receives them and records lags.

The shop's clock runs ten times as fast as real time: an hour lasts six minutes, and its seconds are tenths of ours.
"""

import json
import math
import os
import random
import re
import select
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from uuid import uuid4

import pika

from bench.delayed import KEY
from bench.servers import PAYLOAD
from scheduler.rabbit.frames import AmqpMessage
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher

SPEED = 10
MINUTE, HOUR = 60 // SPEED, 3600 // SPEED  # of the shop, in real seconds
OPENS = 6 + 50 / 60  # hours by the shop's clock: ten minutes before its first full hour
# Recurring jobs: count, interval in minutes of the shop, and priority.
RECURRING = {"report": (20_000, 60, "low"), "digest": (5_000, 15, "low"), "monitor": (600, 1, "normal")}
# Per minute of the shop at its peak.
REMINDERS, WEBHOOKS, DELAYED, FLAKY, BROKEN, CANCELLED = 1200, 180, 300, 0.05, 0.01, 0.1
INTERVAL = 5.0  # real seconds per interval of lags
TURN = 0.1
_PROPERTIES = pika.BasicProperties(content_type="application/json", delivery_mode=2)


def busy(hours: float) -> float:
    """Return the shop's load at a time of its clock; the peak is at half past ten of every day."""
    return 0.35 + 0.65 * math.exp(-(((hours % 24 - 10.5) / 1.8) ** 2))


def instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


class Shop:
    """Requests a shop's jobs from `start` to `end`, if they are due before the end."""

    def __init__(self, start: float, end: float, endpoint: str) -> None:
        self.start, self.end, self.endpoint = start, end, endpoint
        self.dice = random.Random(11)
        self.requested = dict.fromkeys(("reminder", "webhook", "delayed", "flaky", "broken", "cancelled", *RECURRING), 0)
        self._owed = {"reminder": 0.0, "webhook": 0.0, "delayed": 0.0}

    def recurring(self) -> Iterator[AmqpMessage]:
        """Request the recurring jobs, first due at the shop's next full hour, quarter or minute."""
        for kind, (count, minutes, priority) in RECURRING.items():
            first = self.start + -round(OPENS * 60) % minutes * MINUTE
            for _ in range(count):
                yield self._request(kind, first, every=minutes * MINUTE, priority=priority)
            self.requested[kind] = count * max(0, math.ceil((self.end - first) / (minutes * MINUTE) - 1e-6))

    def turn(self, now: float) -> Iterator[AmqpMessage]:
        """Request the jobs since the last turn."""
        busyness = busy(OPENS + (now - self.start) / HOUR) * TURN * SPEED / 60
        for kind, most in (("reminder", REMINDERS), ("webhook", WEBHOOKS), ("delayed", DELAYED)):
            self._owed[kind] += most * busyness
            for _ in range(int(self._owed[kind])):
                self._owed[kind] -= 1
                due = now + 1 + self.dice.expovariate(1 / HOUR * 4)
                if due < self.end - 1:  # later jobs are not part of this day
                    yield from self._one(kind, due)

    def _one(self, kind: str, due: float) -> Iterator[AmqpMessage]:
        if kind == "delayed":
            self.requested[kind] += 1
            headers = {"x-opt-delivery-time": int(due * 1000)}
            yield AmqpMessage("schedule.delay", KEY, json.dumps({"due": int(due * 1000) / 1000} | PAYLOAD).encode(), pika.BasicProperties(
                content_type="application/json", delivery_mode=2, headers=headers, message_id=str(uuid4())))
        elif kind == "webhook":
            roll = self.dice.random()
            path = "broken" if roll < BROKEN else "flaky" if roll < BROKEN + FLAKY else "timed"
            self.requested["webhook" if path == "timed" else path] += 1
            yield self._request("webhook", due, run={"max_attempts": 3, "backoff": [2, 6]},
                                target={"webhook": {"url": f"{self.endpoint}/{path}", "timeout": 10}})
        elif due > time.time() + 10 and self.dice.random() < CANCELLED:
            self.requested["cancelled"] += 1
            yield (request := self._request("cancelled", due))
            yield AmqpMessage("schedule.commands", "cancel", json.dumps({"id": json.loads(request.body)["id"]}).encode(), _PROPERTIES)
        else:
            self.requested["reminder"] += 1
            yield self._request("reminder", due)

    @staticmethod
    def _request(kind: str, due: float, **more: object) -> AmqpMessage:
        body = {"id": str(uuid4()), "job_type": kind, "payload": PAYLOAD, "run_at": instant(due), **more}
        return AmqpMessage("schedule.commands", "request", json.dumps(body).encode(), _PROPERTIES)


def shop(start: float, end: float, endpoint: str) -> None:
    """Send requests until shortly before the end, then print their counts."""
    link = Link(os.environ["AMQP_URL"], "bench")
    publisher, generator = Publisher(link), Shop(start, end, endpoint)
    many = list(generator.recurring())
    for begin in range(0, len(many), 2000):
        publisher.send(many[begin : begin + 2000]).wait(60)
    now = max(start - 5, time.time())
    while now < end - 3:
        time.sleep(max(0.0, now - time.time()))
        publisher.send(list(generator.turn(now))).wait(60)
        now += TURN
    link.close()
    print(json.dumps(generator.requested))


class Host:
    """Receives every event once and records its lag by due time."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end
        self.seen: set[str] = set()
        self.twice = 0
        self.late: dict[str, dict[int, list[float]]] = {}

    def event(self, channel: object, method: object, about: pika.BasicProperties, body: bytes) -> None:  # noqa: ARG002 - pika's
        now = time.time()
        if about.message_id in self.seen:
            self.twice += 1
            return
        self.seen.add(about.message_id)
        kind = re.search(rb'"job_type":"([^"]+)"', body)
        if kind is None:
            self.note("delayed", json.loads(body)["due"], now)
        else:
            due = re.search(rb'"due_at":"([^"]+)"', body)[1].decode()  # type: ignore[index]
            self.note(kind[1].decode(), datetime.fromisoformat(due).timestamp(), now)

    def note(self, kind: str, due: float, now: float) -> None:
        if due < self.end - 0.01:
            of_kind = self.late.setdefault(kind, {})
            of_kind.setdefault(int((due - self.start) // INTERVAL), []).append((now - due) * 1000)

    def figures(self) -> dict[str, object]:
        """Return the counts and lags by kind, by interval and in total."""
        return {"twice": self.twice, "kinds": {
            kind: {"count": sum(map(len, by_interval.values())), "all": quantiles([*chain(*by_interval.values())]),
                   "by interval": {at: quantiles(late) for at, late in sorted(by_interval.items())}}
            for kind, by_interval in self.late.items()}}


def quantiles(late: list[float]) -> dict[str, float]:
    ordered = sorted(late)
    return {"p50": statistics.median(ordered), "p99": ordered[int(len(ordered) * 0.99)], "most": ordered[-1]}


def host(start: float, end: float) -> None:
    """Receive events until standard input ends, then print the figures."""
    receiver = Host(start, end)
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    channel = connection.channel()
    for queue in ("mainapp_due", KEY):
        channel.basic_consume(queue, receiver.event, auto_ack=True)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        connection.process_data_events(0.5)
    connection.close()
    print(json.dumps(receiver.figures()))


if __name__ == "__main__":
    {"shop": shop, "host": host}[sys.argv[1]](*map(float, sys.argv[2:4]), *sys.argv[4:])
