"""The host application: receives events and replies, and reports the results that each event's payload requests."""

import contextlib
import json
import threading
import time
import uuid
from typing import Any

import pika
from pika.exceptions import AMQPError

from torture.courier import Courier, Message, parameters
from torture.history import History, Record, digest

REPLIES, TAP, EXIT, RELAYED = "torture_replies", "torture_tap", "torture_exit", "torture_relayed"
KEPT = ("event_id", "job_id", "job_type", "due_at", "emitted_at", "occurrence", "missed", "next_run_at", "tenant")


def declare(url: str, due_arguments: dict[str, Any] | None, routes: list[str], *, relay: bool) -> None:
    """Declare the host's queues and consume all events except `due`, whose routing is under test.

    With `relay`, also receive a copy of each request, to count the relay's publications.
    """
    with contextlib.closing(pika.BlockingConnection(parameters(url))) as connection:
        channel = connection.channel()
        if due_arguments is not None:
            channel.queue_declare("mainapp_due", durable=True, arguments=due_arguments)
        for name in ("schedule.commands", "schedule.events", "schedule.dead", "schedule.delayed"):
            channel.exchange_declare(name, "topic", durable=True)
        for name in (REPLIES, TAP, EXIT, RELAYED):
            channel.queue_declare(name, durable=True)
        if relay:
            channel.queue_bind(RELAYED, "schedule.commands", "request")
        for key in ("missed", "finished", "rejected"):
            channel.queue_bind(TAP, "schedule.events", key)
        channel.queue_bind(TAP, "schedule.dead", "#")
        channel.queue_bind(EXIT, "schedule.delayed", "out.#")
        for route in routes:
            channel.queue_declare(f"torture_{route}", durable=True)
            channel.queue_bind(f"torture_{route}", "schedule.events", f"due.{route}")


class Host:
    """Receives on one connection; reports over separate couriers."""

    def __init__(self, url: str, history: History, queues: list[str], *, reads_due: bool, user: str | None) -> None:
        self._url = url
        self._history = history
        self._queues = [REPLIES, TAP, EXIT, RELAYED, *queues]
        self._reads_due = reads_due
        self._user = user
        self.full = False  # the nemesis lets `mainapp_due` fill up
        self._answered: set[tuple[str, int, str]] = set()  # what the broker delivers twice is answered once
        self._retried: dict[str, tuple[float, str | None]] = {}  # dead runs to be retried, after how long and whose
        self._stop = threading.Event()
        self.results = [Courier(url) for _ in range(2)]
        self.replies: dict[str, Record] = {}
        self.received = 0
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)
        for courier in self.results:
            courier.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._serve(pika.BlockingConnection(parameters(self._url)))
            except (AMQPError, OSError):
                self._stop.wait(0.3)

    def _serve(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1000)
        last = 0

        def on_message(_: Any, method: Any, properties: Any, body: bytes, queue: str) -> None:
            nonlocal last
            last = method.delivery_tag
            self._take(queue, method, properties, body)

        def consume(queue: str) -> str:
            return channel.basic_consume(queue, lambda *got: on_message(*got, queue))

        for queue in self._queues:
            consume(queue)
        due: str | None = None
        try:
            while not self._stop.is_set():
                if self._reads_due and due is None and not self.full:
                    due = consume("mainapp_due")
                elif due is not None and self.full:
                    channel.basic_cancel(due)
                    due = None
                connection.process_data_events(0.05)
                if last:
                    channel.basic_ack(last, multiple=True)
                    last = 0
        finally:
            with contextlib.suppress(Exception):
                connection.close()

    def _take(self, queue: str, method: Any, properties: Any, body: bytes) -> None:
        if queue == EXIT:
            self._history.add("delayed", message_id=properties.message_id, key=method.routing_key,
                              size=len(body), again=method.redelivered)
            return
        if queue == RELAYED:
            if not method.redelivered:  # a copy that the broker delivers twice was published once
                self._history.add("relayed", cid=properties.correlation_id)
            return
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = {}
        if queue == REPLIES:
            self.replies[properties.correlation_id] = self._history.add(
                "reply", to=properties.correlation_id, type=properties.type, body=content)
        elif queue == TAP:
            self._tapped(method, properties, content, len(body))
        else:
            self._due(method, properties, content)

    def _tapped(self, method: Any, properties: Any, content: Any, size: int) -> None:
        what = "dead" if method.exchange == "schedule.dead" else method.routing_key
        small = {k: v for k, v in content.items() if k not in {"payload", "output", "error", "target"}} if isinstance(
            content, dict) else {}
        headers = {k: str(v)[:300] for k, v in (properties.headers or {}).items() if k.startswith("x-")}
        if what == "finished" and small["status"] == "dead" and small["event_id"] in self._retried:
            wait, tenant = self._retried.pop(small["event_id"])
            self._send("retry", {"event_id": small["event_id"], **({"tenant": tenant} if tenant else {})}, time.time() + wait, {})
        self._history.add(what, key=method.routing_key, body=small, headers=headers, size=size,
                          message_id=properties.message_id, again=method.redelivered)

    def _due(self, method: Any, properties: Any, content: Any) -> None:
        run, payload = content.get("run"), content.get("payload")
        headers = properties.headers or {}
        self.received += 1
        record = self._history.add(
            "due", **{name: content.get(name) for name in KEPT}, key=method.routing_key, again=method.redelivered,
            payload=digest(payload), run=run, message_id=properties.message_id, type=properties.type,
            app_id=properties.app_id, correlation_id=properties.correlation_id, priority=properties.priority,
            traceparent=digest(headers.get("traceparent")) if "traceparent" in headers else None,
        )
        if run and "target" not in content and isinstance(payload, dict) and "do" in payload:
            key = (content["event_id"], run["attempt"], content["emitted_at"])
            if key not in self._answered:
                self._answered.add(key)
                self._work(record, payload["do"])

    def _work(self, event: Record, plan: list[dict[str, Any]]) -> None:
        """Schedule this attempt's reports: `running` with its heartbeats, then the outcome."""
        attempt = event["run"]["attempt"]
        step = plan[min(attempt, len(plan)) - 1]
        began, hold = time.time(), step.get("hold", 0.0)
        common = {"event_id": event["event_id"], "attempt": attempt, "worker": "torture"}
        if beat := step.get("beat"):
            at = began
            while at <= began + hold:
                self._report({**common, "status": "running", "heartbeat": beat}, at)
                at += beat / 3
        outcome = step["o"]
        if outcome == "silent":
            return
        final: dict[str, Any] = {**common, "status": {"ok": "succeeded", "fail": "failed", "giveup": "failed",
                                                      "snooze": "snoozed"}[outcome]}
        if outcome == "giveup":
            final["retry"] = False
        if "in" in step:
            final["retry_in"] = step["in"]
        if "size" in step:
            final["output"] = "x" * step["size"]
        final |= step.get("extra", {})
        if "evil" in step:
            self._report({**common, "status": "succeeded", "tenant": step["evil"]}, began)
        for _ in range(step.get("times", 1)):
            self._report(final, began + hold)
        if "again" in step:
            self._retried[event["event_id"]] = (step["again"], event["tenant"])

    def _report(self, body: dict[str, Any], at: float) -> None:
        small = {name: value for name, value in body.items() if name in {"event_id", "attempt", "status", "heartbeat", "retry_in", "tenant"}}
        self._send("result", body, at, self._history.add("evil" if "tenant" in body else "report", at=at, **small))

    def _send(self, key: str, body: dict[str, Any], at: float, record: Record) -> None:
        courier = self.results[uuid.UUID(body["event_id"]).int % len(self.results)]
        raw = json.dumps(body).encode()
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2, user_id=self._user)
        courier.post(Message("schedule.commands", key, lambda: raw, properties, record), at)
