"""The process AMQP → Postgres: every command is stored, answered or refused with a reason."""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from scheduler.answers import Answers
from scheduler.domain.definition import Incoming
from scheduler.domain.errors import Problem, Rejected, Unavailable
from scheduler.domain.job import Outcome
from scheduler.domain.parsing import parse_command
from scheduler.ops import metrics, traces
from scheduler.ops.health import Health
from scheduler.ops.logs import get_logger
from scheduler.ops.storms import Storm
from scheduler.ops.traces import Traced
from scheduler.postgres.connection import Connection, connect
from scheduler.postgres.store import UNSTORABLE, check, store
from scheduler.rabbit.inbox import Inbox
from scheduler.rabbit.link import BrokerUnavailable, Link
from scheduler.rabbit.reading import Delivery, UnreadableProperties
from scheduler.rabbit.topology import DELIVERY_LIMIT
from scheduler.runtime import Stop, backoff
from scheduler.settings import Settings

log = get_logger(__name__)
_rejections = Storm(log, "command rejected")
_losses = Storm(log, "database unavailable: commands stay in the queue until it is back")

BATCH = 1000
LANES = 2
# Without a database a consumer keeps its commands no longer than this, then gives them back: another one may
# reach it. Each time in a row that this was of no use it keeps them longer, for every return counts as a delivery.
KEEP_SECONDS = 8.0
MOST_KEEP_SECONDS = 1500.0  # RabbitMQ itself takes back what is not acknowledged for half an hour
_CRASHED = f"was delivered {DELIVERY_LIMIT} times and never answered: handling it ends the consumer"
# What is wrong with a command as a whole, told apart by how it is said.
_BODY = ((_CRASHED, "redelivered"), (UNSTORABLE, "storage"))
_TRACE = ("traceparent", "tracestate")


class DatabaseAway(Unavailable):
    """The database has been away for so long that the commands are given back."""


@dataclass(slots=True)
class Lane:
    """A connection to the database, for one batch at a time."""

    database: Connection | None = None

    def close(self) -> None:
        if self.database is not None:
            self.database.close()
            self.database = None


@dataclass(slots=True)
class Stored:
    """What became of the commands of a batch that could be read, and when, in nanoseconds of Unix time."""

    answers: Sequence[Outcome | Rejected]
    began: int
    ended: int


@dataclass(slots=True)
class Flight:
    """A batch that is being stored."""

    batch: list[Delivery]
    ids: set[str]
    lane: Lane
    stored: Future[Stored | None]


class Consumer:
    """Takes what is waiting, stores it in one transaction, answers, and only then acknowledges.

    While the queue is long two batches are stored at a time, unless they are about the same jobs: Postgres works
    on the one while the other is read and applied.
    """

    def __init__(self, settings: Settings, stop: Stop, health: Health) -> None:
        self._settings = settings
        self._stop = stop
        self._health = health
        self._lanes = [Lane() for _ in range(LANES)]  # those that are free
        self._workers = ThreadPoolExecutor(LANES, thread_name_prefix="storing")
        self._keep = KEEP_SECONDS
        # A producer's own next look comes within its poll interval; a little more covers its sleep's jitter.
        self._soon = timedelta(milliseconds=settings.poll_interval_ms + 100)

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process shall stop."""
        answers = Answers(link, self._wait_for_alarm)
        while not self._stop:
            inbox = Inbox(link, self._settings.prefetch, self._parsed)
            try:
                self._serve(inbox, answers, link)
            except DatabaseAway:
                inbox.give_back()
                self._keep = min(self._keep * 2, MOST_KEEP_SECONDS)
                self._wait_for_database(link)

    def _serve(self, inbox: Inbox, answers: Answers, link: Link) -> None:
        # In the order of delivery: to acknowledge one is to acknowledge all before it.
        flights: deque[Flight] = deque()
        try:
            while not self._stop:
                self._health.turn()
                self._health.found("rabbitmq")
                batch = inbox.take(BATCH, timeout=0.0 if flights else 0.5)
                ids = _ids(batch)
                while any(flight.ids & ids for flight in flights):
                    if not self._land(flights, inbox, answers):
                        return
                if batch:
                    flights.append(self._take_off(batch, ids, link))
                if (
                    flights and (len(batch) < BATCH or not self._lanes)
                    and not self._land(flights, inbox, answers)
                ):
                    return
            while flights and self._land(flights, inbox, answers):
                pass
        finally:
            wait([flight.stored for flight in flights])  # what they do must not run into what comes next
            self._lanes += [flight.lane for flight in flights]

    def _take_off(self, batch: list[Delivery], ids: set[str], link: Link) -> Flight:
        lane = self._lanes.pop()
        return Flight(batch, ids, lane, self._workers.submit(self._stored, lane, batch, link))

    def _land(self, flights: deque[Flight], inbox: Inbox, answers: Answers) -> bool:
        """Wait for the oldest batch, then answer and acknowledge it; False if a stop came before it was stored.

        Then none behind it may land either.
        """
        stored = flights[0].stored.result()
        if stored is None:
            return False
        flight = flights.popleft()
        self._lanes.append(flight.lane)
        self._finish(flight.batch, stored, inbox, answers)
        return True

    def _finish(self, batch: list[Delivery], stored: Stored, inbox: Inbox, answers: Answers) -> None:
        metrics.batch_size.observe(len(batch))
        outcomes = iter(stored.answers)
        verdicts = [each.read if isinstance(each.read, Rejected) else next(outcomes) for each in batch]
        refused = answers.give([
            (delivery, verdict) for delivery, verdict in zip(batch, verdicts, strict=True)
            if isinstance(verdict, Rejected) or delivery.properties.reply_to
        ])
        _count(batch, verdicts)
        if log.shows_debug or traces.sink is not None:
            _tell(stored, [each.read for each in batch], verdicts)
        inbox.ack(batch, refused)

    def _parsed(self, delivery: Delivery) -> Incoming | Rejected:
        if delivery.deliveries_before >= DELIVERY_LIMIT - 1:
            return Rejected([Problem("body", _CRASHED)])
        properties = delivery.properties
        if isinstance(properties, UnreadableProperties):
            return Rejected([Problem("headers", f"cannot be read ({properties.problem}); are times in seconds?")])
        try:
            incoming = parse_command(
                delivery.routing_key, delivery.body, message_type=properties.type,
                max_payload_bytes=self._settings.max_payload_bytes,
            )
        except Rejected as verdict:
            return verdict.kept()
        except Exception:
            # A case that nobody thought of must not end the consumer again and again: the message is kept aside.
            log.exception("command cannot be read", do="report it, with the message in scheduler_dead")
            return Rejected([Problem("body", "cannot be read: an error of the scheduler's own, see its log")])
        incoming.correlation_id = _storable(properties.correlation_id)
        headers = properties.headers
        if headers:
            incoming.traceparent, incoming.tracestate = (_storable(headers.get(name)) for name in _TRACE)
        return incoming

    def _stored(self, lane: Lane, batch: list[Delivery], link: Link) -> Stored | None:
        """Store what was understood, waiting a while for the database if need be; None on a stop."""
        incoming = [each.read for each in batch if isinstance(each.read, Incoming)]
        began = time.time_ns()
        if not incoming:
            return Stored((), began, began)
        until = time.monotonic() + self._keep
        for delay in backoff(most=5.0):
            started = time.perf_counter()
            try:
                if lane.database is None:
                    lane.database = connect(self._settings.database_url, "consumer")
                answers = store(lane.database, incoming, self._soon)
            except Unavailable as error:
                self._lose_database(lane, error)
                if self._stop.wait(delay):
                    return None
                if link.closed is not None:
                    raise BrokerUnavailable(link.closed) from None
                if time.monotonic() > until:
                    raise DatabaseAway(str(error)) from None
                self._health.turn()
            else:
                self._keep = KEEP_SECONDS
                metrics.loop_seconds.labels("store").observe(time.perf_counter() - started)
                self._health.found("postgres")
                return Stored(answers, began, time.time_ns())
        raise AssertionError  # backoff never ends

    def _wait_for_database(self, link: Link) -> None:
        """Take no command that could not be stored, until the database is back."""
        lane = self._lanes[-1]
        for delay in backoff(most=2.0):
            self._health.turn()
            try:
                lane.database = connect(self._settings.database_url, "consumer")
                check(lane.database)
            except Unavailable as error:
                self._lose_database(lane, error)
            else:
                return
            if self._stop.wait(delay):
                return
            if link.closed is not None:
                raise BrokerUnavailable(link.closed)

    def _wait_for_alarm(self) -> None:
        """Say why nothing moves, and sleep a little; a stop ends the wait."""
        self._health.missing("rabbitmq", "it blocks publishers: its memory or disk alarm is on")
        self._health.turn()
        if self._stop.wait(0.2):
            raise Unavailable("stopped while the broker blocks publishers")

    def _lose_database(self, lane: Lane, error: Unavailable) -> None:
        self._health.missing("postgres", str(error))
        _losses.warning(
            problem=str(error),
            do="check that Postgres runs, that DATABASE_URL is right and that `scheduler migrate` was run",
        )
        lane.close()

    def close(self) -> None:
        self._workers.shutdown(wait=False)
        for lane in self._lanes:
            lane.close()


def _ids(batch: list[Delivery]) -> set[str]:
    return {each.read.job_id for each in batch if isinstance(each.read, Incoming)}


def _count(batch: list[Delivery], verdicts: Sequence[Outcome | Rejected]) -> None:
    queued = cancelled = 0
    for delivery, verdict in zip(batch, verdicts, strict=True):
        if isinstance(verdict, Rejected):
            metrics.commands_rejected.labels(_reason(verdict)).inc()
            properties = delivery.properties
            _rejections.warning(
                problems=str(verdict)[:1000], command=delivery.routing_key[:100], message_id=properties.message_id,
                correlation_id=properties.correlation_id,
                do="see x-rejected-reason of the messages in scheduler_dead",
            )
        elif verdict.status == "scheduled":
            queued += delivery.routing_key == "request"
        elif verdict.status == "cancelled":
            cancelled += 1
    metrics.jobs_queued.inc(queued)
    metrics.jobs_cancelled.inc(cancelled)


def _tell(
    stored: Stored, parsed: Sequence[Incoming | Rejected], verdicts: Sequence[Outcome | Rejected]
) -> None:
    """Show each stored command: a debug line, and a span where it belongs to a trace."""
    traced = []
    for incoming, verdict in zip(parsed, verdicts, strict=True):
        if isinstance(incoming, Rejected) or isinstance(verdict, Rejected):
            continue
        ids = {"job_id": str(verdict.job.id), "correlation_id": incoming.correlation_id}
        kind = type(incoming.command).__name__
        log.debug("stored", **ids, trace_id=traces.trace_id(incoming.traceparent), command=kind,
                  status=verdict.status, next_run_at=verdict.job.next_run_at)
        if incoming.traceparent is not None:
            attributes = {"command": kind, **{name: value for name, value in ids.items() if value}}
            traced.append(Traced(incoming.traceparent, incoming.tracestate, attributes))
    if traces.sink is not None and traced:
        traces.sink.stored(stored.began, stored.ended, traced)


def _reason(verdict: Rejected) -> str:
    """Sort a rejection under one of a few fixed words."""
    fields = {each.field for each in verdict.problems}
    if fields == {"body"}:
        return next((word for start, word in _BODY if verdict.problems[0].problem.startswith(start)), "json")
    return "schedule" if fields & {"rrule", "cron", "every", "run_at", "timezone"} else "shape"


def _storable(value: Any) -> str | None:
    """Return a property that can be kept in a text column and handed back as it is."""
    return value if isinstance(value, str) and "\x00" not in value else None
