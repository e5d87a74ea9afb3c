"""A host under continuous load: it sends requests and cancels, and receives every event.

The host keeps its own records. Only the events in them come from the sidecar.
"""

import contextlib
import json
import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pika
from pika.exceptions import AMQPError

_ONE_SECOND = timedelta(seconds=1)
# A sender waits for the confirm of one command before it sends the next. Several senders, so that the round trips of
# a slow machine do not delay the host.
SENDERS = 3


@dataclass
class RequestedJob:
    """A job that the host requested; `expected` are the instants that must be emitted."""

    id: str
    expected: list[datetime]
    confirmed: bool = False
    requested_at: float | None = None
    sent_at: float | None = None  # when the request was first sent
    cancel_sent: bool = False


@dataclass(frozen=True)
class Event:
    """A received ScheduleDue."""

    event_id: str
    job_id: str
    due_at: datetime
    emitted_at: datetime
    received_at: datetime


@dataclass
class HostRecords:
    """Requested jobs and received events."""

    jobs: dict[str, RequestedJob] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    sent: int = 0
    poison: int = 0
    counted_only: int = 0
    counted_only_early: int = 0
    transit: float = 0.0  # seconds from emission to receipt of the last event


class Host:
    """Publish each command until the broker confirms it, and receive events."""

    def __init__(
        self, amqp_url: str, *, one_shots: float = 80, recurring: float = 3, cancels: float = 10, tracked: float = 0,
        poison: float = 0.0, count: int = 12, counted_only: str | None = None,
    ) -> None:
        """Only count events of the job type `counted_only`: storing them would fill the memory in a soak."""
        self.records = HostRecords()
        self._counted_only = counted_only
        self._urls = amqp_url.split(",")
        self._rates = {"one_shot": one_shots, "recurring": recurring, "cancelled": cancels, "tracked": tracked}
        self._poison = poison
        self._count = count
        self._outbox: deque[tuple[str, bytes, str | None]] = deque()
        self._sending: set[int] = set()
        self._later: list[tuple[float, str, bytes, str]] = []
        self._requesting = threading.Event()
        self._stop = threading.Event()
        self._random = random.Random(6)
        self._threads = [
            *(threading.Thread(target=self._keep, args=(self._send,), name="host sender", daemon=True)
              for _ in range(SENDERS)),
            threading.Thread(target=self._keep, args=(self._receive,), name="host receiver", daemon=True),
            threading.Thread(target=self._request_jobs, name="host", daemon=True),
        ]

    def start(self) -> None:
        self._requesting.set()
        for thread in self._threads:
            thread.start()

    def stop_requesting(self) -> None:
        """Stop new requests. Pending commands are still sent, and events received."""
        self._requesting.clear()

    @property
    def outstanding(self) -> int:
        return len(self._outbox) + len(self._later) + len(self._sending)

    def close(self) -> None:
        self._requesting.clear()
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    # --- requests

    def _request_jobs(self) -> None:
        debts = dict.fromkeys(self._rates, 0.0)
        last = time.monotonic()
        while not self._stop.wait(0.02):
            now = time.monotonic()
            for kind, rate in self._rates.items():
                debts[kind] += rate * (now - last) if self._requesting.is_set() else 0.0
                while debts[kind] >= 1:
                    debts[kind] -= 1
                    getattr(self, f"_{kind}")()
            last = now
            for scheduled in [scheduled for scheduled in self._later if scheduled[0] <= now]:
                self._later.remove(scheduled)
                self.command(scheduled[1], scheduled[2], scheduled[3])

    def _one_shot(self) -> None:
        self.request(datetime.now(UTC) + timedelta(seconds=self._random.uniform(0.5, 4)))
        if self._random.random() < self._poison:
            self.records.poison += 1
            self._outbox.append(("request", self._random.choice(POISON), None))

    def _recurring(self) -> None:
        start = datetime.now(UTC) + timedelta(seconds=self._random.uniform(0.5, 2))
        self.request(start, count=self._count)

    def _cancelled(self) -> None:
        job = self.request(datetime.now(UTC) + timedelta(seconds=self._random.uniform(3, 8)))
        job.cancel_sent = True
        body = {"id": job.id, "issued_at": _iso(datetime.now(UTC) + timedelta(milliseconds=1))}
        at = time.monotonic() + self._random.uniform(0.2, 2)
        self._later.append((at, "cancel", json.dumps(body).encode(), job.id))

    def _tracked(self) -> None:
        self.request(datetime.now(UTC) + timedelta(seconds=self._random.uniform(0.5, 4)), run={"start_timeout": 20})

    def request(self, run_at: datetime, count: int = 0, **fields: object) -> RequestedJob:
        """Request a job that runs once, or `count` times every second."""
        body = {"id": str(uuid4()), "job_type": "chaos.job", "payload": {"n": self.records.sent},
                "run_at": _iso(run_at), "issued_at": _iso(datetime.now(UTC))} | fields
        expected = [run_at]
        if count:
            # RFC 5545 counts whole seconds of the wall clock; fractions come from DTSTART.
            run_at = run_at.replace(microsecond=0) + _ONE_SECOND
            body |= {"rrule": f"FREQ=SECONDLY;COUNT={count}", "on_missed": "all", "run_at": _iso(run_at)}
            expected = [run_at + _ONE_SECOND * n for n in range(count)]
        job = RequestedJob(str(body["id"]), expected, requested_at=time.time())
        self.records.jobs[job.id] = job
        self.command("request", json.dumps(body).encode(), job.id)
        return job

    def command(self, key: str, body: bytes, job_id: str | None) -> None:
        self.records.sent += 1
        self._outbox.append((key, body, job_id))

    # --- the two connections

    def _keep(self, work: object) -> None:
        """Run `work` on a connection; reconnect, to each node in turn, when it is lost."""
        attempt = 0
        while not self._stop.is_set():
            url = self._urls[attempt % len(self._urls)]
            attempt += 1
            try:
                parameters = pika.URLParameters(url)
                parameters.heartbeat, parameters.socket_timeout, parameters.stack_timeout = 10, 5, 8
                parameters.blocked_connection_timeout = 300
                connection = pika.BlockingConnection(parameters)
                try:
                    work(connection)
                finally:
                    with contextlib.suppress(AMQPError, OSError):
                        if connection.is_open:
                            connection.close()
            except (AMQPError, OSError):
                self._stop.wait(0.3)

    def _send(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        while not self._stop.is_set():
            self._sending.add(threading.get_ident())  # before popleft: the command must stay visible in `outstanding`
            try:
                key, body, job_id = command = self._outbox.popleft()
            except IndexError:
                self._sending.discard(threading.get_ident())
                connection.process_data_events(0.01)
                continue
            job = self.records.jobs[job_id] if key == "request" and job_id else None
            if job is not None and job.sent_at is None:
                job.sent_at = time.time()
            try:
                channel.basic_publish("schedule.commands", key, body, properties, mandatory=True)
            except BaseException:
                self._outbox.appendleft(command)
                raise
            else:
                if job is not None:
                    job.confirmed = True
            finally:
                self._sending.discard(threading.get_ident())

    def _receive(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=2000)
        recorded = settled = 0

        def received(_: object, method: pika.spec.Basic.Deliver, __: object, body: bytes) -> None:
            nonlocal recorded, settled
            self._record(body)
            recorded = method.delivery_tag
            if recorded - settled >= 100:
                channel.basic_ack(recorded, multiple=True)
                settled = recorded

        gone = threading.Event()  # deleting a queue cancels its consumers
        channel.add_on_cancel_callback(lambda _: gone.set())
        channel.basic_consume("mainapp_due", received)
        while not (self._stop.is_set() or gone.is_set()):
            connection.process_data_events(0.05)
            if recorded > settled:
                channel.basic_ack(recorded, multiple=True)
                settled = recorded

    def _record(self, body: bytes) -> None:
        now = datetime.now(UTC)
        event = json.loads(body)
        due, emitted = (datetime.fromisoformat(event[name]) for name in ("due_at", "emitted_at"))
        self.records.transit = (now - emitted).total_seconds()
        if event["job_type"] == self._counted_only:
            self.records.counted_only += 1
            self.records.counted_only_early += emitted < due or now < due
            return
        if self._rates["tracked"] and "run" in event:
            report = {"event_id": event["event_id"], "attempt": event["run"]["attempt"], "status": "succeeded"}
            self.command("result", json.dumps(report).encode(), None)
        self.records.events.append(Event(event["event_id"], event["job_id"], due, emitted, now))


POISON = [
    b"", b"not json", b"[]", b"{", b'{"id": 1}', b"\xff\xfe", b'{"id":"x","job_type":"a","run_at":"tomorrow"}',
    b'{"id":"00000000-0000-0000-0000-000000000001","job_type":"a"}',
    b'{"id":"00000000-0000-0000-0000-000000000001","job_type":"a","rrule":"FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}',
    b'{"id":"00000000-0000-0000-0000-000000000001","job_type":"a","run_at":"2026-01-01T00:00:00Z","rule":"x"}',
    b'{"id":"00000000-0000-0000-0000-000000000001","job_type":"a\\u0000","run_at":"2026-01-01T00:00:00Z"}',
    b'{"id":"00000000-0000-0000-0000-000000000001","job_type":"a","run_at":"2026-01-01T00:00:00Z","payload":{"x":NaN}}',
    b'{"id":"00000000-0000-0000-0000-000000000001","job_type":"a","payload":' + b"[" * 20000 + b"}",
    b'{"id":"00000000-0000-0000-0000-000000000001","job_type":"a","every":"PT0S"}',
]


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")
