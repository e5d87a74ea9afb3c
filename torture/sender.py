"""Sends the steps of a plan: over AMQP, through the outbox, the REST API and the command line."""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pika
import psycopg2

from torture.courier import Courier, Message
from torture.generator import Step
from torture.history import History, digest, instant
from torture.host import REPLIES
from torture.people import People

LANES = 3
VALID_TRACE = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
FRAME_MAX = 131_072  # RabbitMQ's default: a message's properties have to fit one frame


def _frame(properties: pika.BasicProperties) -> int:
    """Return the size of the content header frame."""
    return 8 + 12 + sum(map(len, properties.encode()))


def _encodable(headers: dict[str, Any]) -> dict[str, Any]:
    """Return headers that pika can encode: it knows decimals and no floats."""
    return {name: Decimal(str(value)) if isinstance(value, float) else value for name, value in headers.items()}


class Sender:
    """Resolves each step against the begin of the run and hands it to a courier."""

    def __init__(self, history: History, amqp_url: str, url: Callable[[str], str]) -> None:
        self._history = history
        self._url = url
        self.couriers = [Courier(amqp_url) for _ in range(LANES)]
        self.origin = 0.0
        self.host_database: str | None = None
        self.people: People | None = None
        self.user: str | None = None  # the broker's user that messages name, if tenants come from it
        self._outbox: list[tuple[float, Step, dict[str, Any]]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, origin: float, steps: list[Step]) -> None:
        self.origin = origin
        asked: list[tuple[float, Step, dict[str, Any], Any]] = []
        for number, step in enumerate(steps):
            record = self._history.add(
                "sent", cid=self._cid(number, step), do=step["do"], job=step["job"], group=step["group"],
                family=step["family"], expect=step.get("expect", "ok"), planned=origin + step["at"],
                **{name: step[name] for name in ("lasts", "reaches", "settled", "via", "quiet", "unsure") if name in step})
            if step.get("via") in {"api", "cli"}:
                asked.append((origin + step["at"], step, record, partial(self._content, step, record)))
                continue
            if step.get("via") == "outbox":
                self._outbox.append((origin + step["at"], step, record))
                continue
            lane = step.get("lane", UUID(step["job"]).int % LANES)
            self.couriers[lane].post(self._message(step, record), origin + step["at"])
        if asked and self.people:
            self.people.start(asked)
        if self._outbox:
            self._thread = threading.Thread(target=self._write_outbox, name="outbox", daemon=True)
            self._thread.start()

    @property
    def waiting(self) -> int:
        return sum(courier.waiting for courier in self.couriers)

    def close(self) -> None:
        self._stop.set()
        if self.people:
            self.people.close()
        for courier in self.couriers:
            courier.close()
        if self._thread:
            self._thread.join(10)

    @staticmethod
    def _cid(number: int, step: Step) -> str:
        return f"{number}".ljust(step.get("pad", 0), "~")

    def _message(self, step: Step, record: dict[str, Any]) -> Message:
        headers = {**step.get("headers", {}), **({"traceparent": step["traceparent"]} if "traceparent" in step else {})}
        properties = pika.BasicProperties(
            content_type="application/json", delivery_mode=2, headers=_encodable(self.resolve(headers)) or None,
            correlation_id=record["cid"], reply_to=None if step.get("quiet") else REPLIES,
            message_id=step.get("message_id"), user_id=step.get("user", self.user))
        for name, value in headers.items():
            if isinstance(value, dict) and "$frame" in value:
                properties.headers[name] = "x" * (FRAME_MAX - value["$frame"] - _frame(properties))
                step["headers"] = {**step.get("headers", {}), name: properties.headers[name]}
                if name == "traceparent":
                    step["traceparent"] = properties.headers[name]
        key = step.get("key", step["do"])
        return Message(step.get("exchange", "schedule.commands"), key, lambda: self._body(step, record),
                       properties, record)

    def _body(self, step: Step, record: dict[str, Any]) -> bytes:
        if "raw" in step:
            return step["raw"].encode()
        if "$bytes" in step["body"]:
            record["headers"] = {name: value for name, value in self.resolve(step["headers"]).items() if name != "big"}
            return b"b" * step["body"]["$bytes"]
        return json.dumps(self._content(step, record)).encode()

    def _content(self, step: Step, record: dict[str, Any]) -> dict[str, Any]:
        body = self.resolve(step["body"])
        self._note(step, body, record)
        return body

    def _note(self, step: Step, body: dict[str, Any], record: dict[str, Any]) -> None:
        record["payload"] = digest(body.get("payload", {}))
        if VALID_TRACE.fullmatch(str(step.get("traceparent"))):  # what is not valid may be dropped
            record["traceparent"] = digest(self.resolve(step["traceparent"]))
        record["body"] = {name: value for name, value in body.items() if name not in {"payload", "target"}}
        payload = body.get("payload")
        record["behaviour"] = payload.get("do") if isinstance(payload, dict) else None
        if "target" in body:
            record["target"] = next(iter(body["target"]))

    def resolve(self, value: Any) -> Any:
        """Replace `$at` and similar placeholders by their current values."""
        if isinstance(value, list):
            return [self.resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"$at": offset}:
                return instant(self.origin + offset)
            case {"$ms": offset}:
                return int((self.origin + offset) * 1000)
            case {"$frame": _}:
                return ""
            case {"$fill": size}:
                return "x" * size
            case {"$url": path}:
                return self._url(path)
        return {name: self.resolve(item) for name, item in value.items()}

    def _write_outbox(self) -> None:
        with contextlib.closing(psycopg2.connect(self.host_database)) as connection:  # `with connection` is one transaction
            connection.autocommit = True
            for when, step, record in self._outbox:
                if self._stop.wait(max(0.0, when - time.time())):
                    return
                body = self.resolve(step["body"])
                self._note(step, body, record)
                headers = self.resolve(step.get("headers"))
                try:
                    with connection.cursor() as cursor:
                        cursor.execute(
                            "INSERT INTO scheduler_outbox (kind, body, correlation_id, headers) VALUES (%s, %s, %s, %s)",
                            (step["do"], json.dumps(body), record["cid"], json.dumps(headers) if headers else None))
                    record["first"] = record["confirmed"] = time.time()
                    record["publishes"] = 1
                except psycopg2.Error as problem:
                    record["gave_up"] = str(problem)
