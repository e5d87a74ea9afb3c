"""The consumer process: stores commands, results and delayed messages in Postgres, or rejects them."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from scheduler.commands import batch_telemetry
from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.apply_delayed import parse_delayed_delivery, store_delayed
from scheduler.commands.apply_results import record_results
from scheduler.commands.command_replies import message_type, rejection, reply_to
from scheduler.commands.decide_commands import LOCKED, MessageOutcome
from scheduler.commands.parse_deliveries import parse_command_delivery, parse_result_delivery
from scheduler.commands.redeliveries import UNREAD, Redeliveries
from scheduler.commands.result_reader import ResultReader
from scheduler.commands.set_aside import SetAside
from scheduler.commands.store_batches import ApplyBatch, BatchStore, DatabaseUnavailable, StoredBatch, StoreSession
from scheduler.commands.tenancy import Tenancy
from scheduler.domain.errors import Rejected, Unavailable
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.message_parser import calendar_about
from scheduler.domain.messages import ScheduleCalendar
from scheduler.domain.names import (
    DELAY_EXCHANGE,
    DELAY_QUEUE,
    DELAYED_EXCHANGE,
    INBOX_QUEUE,
    RESULTS_QUEUE,
    delay_entry,
    delay_queue,
)
from scheduler.domain.runs.marker import Marker
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.processes.runtime import Stop
from scheduler.rabbit.address import user
from scheduler.rabbit.batch_consumer import BatchConsumer
from scheduler.rabbit.consumer_timeout import ConsumerTimeout
from scheduler.rabbit.delivery_parser import Decode, Delivery, decoded, undecoded
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.outcome_publisher import CommandReply, OutcomePublisher
from scheduler.rabbit.reply_address import ReplyAddresses
from scheduler.rabbit.reply_sender import ReplySender
from scheduler.settings import Settings

log = get_logger(__name__)
_locked = ThrottledWarning(log, "messages set aside: another session has locked their rows")
_returned = ThrottledWarning(log, "messages returned to the queue: their rows have been locked for too long")

BATCH = 1000
SESSIONS = 2
SKIP_LOCKED_SECONDS = 5.0
DEAD_BODY_BYTES = 1024 * 1024  # beyond the largest payload: longer bodies of tenants' rejected commands are cut
STOP_SECONDS = 1.0  # for the broker to requeue unstored messages
_CALENDAR = ScheduleCalendar.kind
_routing_key = attrgetter("routing_key")


@dataclass(slots=True)
class PendingBatch:
    """Messages that are being stored by a session."""

    deliveries: list[Delivery]
    ids: set[str]
    session: StoreSession
    stored: Future[StoredBatch | None]
    waits_for_locks: bool
    calendars: bool  # it may store calendars, which requests in later batches use


@dataclass(frozen=True, slots=True)
class MessageKind:
    """A queue, and how its messages are read, stored and counted."""

    queue: str
    read: Callable[..., Any]
    apply: ApplyBatch
    count: Callable[[Sequence[Delivery], Sequence[MessageOutcome]], None]
    decode: Decode | None = None


COMMANDS = MessageKind(INBOX_QUEUE, parse_command_delivery, apply_commands, batch_telemetry.count_commands)
RESULTS = MessageKind(RESULTS_QUEUE, parse_result_delivery, record_results, batch_telemetry.count_results)
DELAYED = MessageKind(DELAY_QUEUE, parse_delayed_delivery, store_delayed, batch_telemetry.count_delayed, undecoded)


class Consumer:
    """Stores batches of messages, each in one transaction, replies, and only then acknowledges.

    While the queue is long two batches are stored concurrently, unless both concern the same jobs: Postgres works
    on one while the other is read and applied.

    Messages for rows that another session keeps locked are set aside, unacknowledged. A separate session retries
    them: all of them without waiting for locks, then the messages for one id, waiting as long as any batch.
    Before the broker's consumer timeout they are requeued and redelivered.
    """

    kind = COMMANDS
    sessions = SESSIONS

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        self._settings = settings
        self._stop = stop
        self._health = health
        self._storing = BatchStore(settings, stop, health)
        self._free = [StoreSession(settings.database_url, self.kind.apply) for _ in range(self.sessions)]
        self._retry_session = StoreSession(settings.database_url, self.kind.apply)
        self._threads = ThreadPoolExecutor(self.sessions + 1, thread_name_prefix="storing")
        self._set_aside = SetAside()  # messages of the current inbox
        self._consumer_timeout = ConsumerTimeout()
        self._retrying: PendingBatch | None = None
        self._skip_locked_until = 0.0  # a recent batch timed out waiting for a lock: the next ones do not wait
        self._reply_sender = ReplySender(partial(_connect_for_replies, settings.amqp_urls))
        self._redeliveries: Redeliveries | None = None  # of the current connection

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process stops."""
        untrusted = self._settings.tenant_by == "user_id" and self._settings.tenant_routes == "prefix"
        addresses = ReplyAddresses(self._settings.reply_queues, untrusted=untrusted)
        publisher = OutcomePublisher(
            link, self._wait_for_alarm, self._reply_sender, addresses, max_body=self._max_dead_body()
        )
        if self._redeliveries:
            self._redeliveries.close()
        self._redeliveries = Redeliveries(
            self._settings.database_url, self._storing, self._reader(link),
            queue_may_count=self._settings.queue_type != "classic",
        )
        read = self._redeliveries.read
        while not self._stop and self._prepare(link):
            inbox = BatchConsumer(link, self.kind.queue, self._settings.prefetch, read, self.kind.decode)
            try:
                self._serve(inbox, publisher, link)
            except DatabaseUnavailable:
                inbox.give_back()
                self._storing.wait(self._free[-1], link.check_open)
            self._ended(inbox)

    def _max_dead_body(self) -> int | None:
        """Return the bytes kept of a rejected body; None for all of them, if publishers trust each other."""
        by_user = self._settings.tenant_by == "user_id"
        return self._settings.max_payload_bytes + DEAD_BODY_BYTES if by_user else None

    def _prepare(self, link: Link) -> bool:  # noqa: ARG002 - for subclasses
        """Prepare for the first delivery; return False on a stop."""
        return True

    def _turn(self, inbox: BatchConsumer) -> None:
        """Run once per iteration of the loop; for subclasses."""

    def _ended(self, inbox: BatchConsumer) -> None:
        """Clean up after the last delivery, unless the connection was lost; for subclasses."""

    def _reader(self, link: Link) -> Callable[[Delivery], Any]:  # noqa: ARG002 - for subclasses
        settings = self._settings
        own_users = [*map(user, settings.amqp_urls), *settings.worker_users]
        tenancy = Tenancy.of(settings.tenant_by, own_users, settings.tenant_routes)
        return partial(self.kind.read, max_payload_bytes=settings.max_payload_bytes, tenancy=tenancy)

    def _serve(self, inbox: BatchConsumer, publisher: OutcomePublisher, link: Link) -> None:
        # In the order of delivery: acknowledging a batch acknowledges all batches before it.
        batches: deque[PendingBatch] = deque()
        self._forget_set_aside()
        try:
            while not self._stop:
                self._health.turn()
                self._health.found("rabbitmq")
                self._turn(inbox)
                if self._set_aside and not self._retry(batches, inbox, publisher, link):
                    return
                deliveries = self._take(batches, inbox, publisher, link)
                if deliveries is None:
                    return
                ids = self._ids(deliveries)
                waits_for = ids | self._uses(deliveries) if any(batch.calendars for batch in batches) else ids
                while not all(batch.ids.isdisjoint(waits_for) for batch in batches):
                    if not self._finish_oldest(batches, inbox, publisher):
                        return
                full = len(deliveries) == BATCH
                if self._set_aside:
                    deliveries = self._without_set_aside(deliveries, inbox)
                if deliveries:
                    batches.append(self._start(deliveries, ids, link, self._free.pop()))
                if (
                    batches and (not full or not self._free)
                    and not self._finish_oldest(batches, inbox, publisher)
                ):
                    return
            while batches and self._finish_oldest(batches, inbox, publisher):
                pass
            if self._retrying is not None:
                self._finish_retry(self._retrying, inbox, publisher)
        except RabbitUnavailable as error:
            self._consumer_timeout.learn(str(error), self._set_aside.held_seconds)
            raise
        finally:
            # Their transactions must end before the next batches start.
            wait([batch.stored for batch in (*batches, *filter(None, [self._retrying]))])
            self._free += [batch.session for batch in batches]
            self._forget_set_aside()

    def _take(
        self, batches: deque[PendingBatch], inbox: BatchConsumer, publisher: OutcomePublisher, link: Link
    ) -> list[Delivery] | None:
        """Return the next messages, or one alone if it may crash the consumer; None on a stop."""
        idle_seconds = 0.05 if self._set_aside else 0.5
        delivered = inbox.take(BATCH, timeout=0.0 if batches else idle_seconds)
        redeliveries = self._redeliveries
        if redeliveries is None:
            return delivered
        deliveries = redeliveries.next_batch(delivered, inbox, link.check_open)
        if deliveries and deliveries[0].read is UNREAD:
            while batches:
                if not self._finish_oldest(batches, inbox, publisher):
                    return None
            if not redeliveries.parse_suspect(deliveries[0], link.check_open):
                return None
        return deliveries

    def _return_all(
        self, batches: deque[PendingBatch], inbox: BatchConsumer, publisher: OutcomePublisher
    ) -> None:
        """Return the messages that were set aside to the queue, in order with those delivered after them."""
        while batches:
            if not self._finish_oldest(batches, inbox, publisher):
                return
        if self._retrying is not None and self._finish_retry(self._retrying, inbox, publisher) is None:
            return
        _returned.warning(do="find the open transaction in pg_stat_activity: each return counts as a delivery")
        inbox.requeue_in_order()

    def _hold(self, deliveries: list[Delivery], inbox: BatchConsumer) -> None:
        """Set messages aside. They do not crash the consumer, however often they were delivered."""
        inbox.set_aside(deliveries)
        self._set_aside.add(deliveries)
        if self._redeliveries:
            self._redeliveries.forget(deliveries)

    def _forget_set_aside(self) -> None:
        self._set_aside, self._retrying = SetAside(), None

    def _ids(self, deliveries: Sequence[Delivery]) -> set[str]:
        """Return the ids that the messages concern: batches that share an id are stored one after the other."""
        return {delivery.read.about for delivery in deliveries if not isinstance(delivery.read, Rejected)}

    def _uses(self, deliveries: Sequence[Delivery]) -> set[str]:
        """Return the calendars that requests name: a calendar in an earlier batch must be stored first."""
        return {
            calendar_about(name) for delivery in deliveries
            if isinstance(delivery.read, Incoming)
            and (name := getattr(delivery.read.command, "calendar", None)) is not None
        }

    def _start(
        self, deliveries: list[Delivery], ids: set[str], link: Link, session: StoreSession,
        *, wait_for_locks: bool | None = None,
    ) -> PendingBatch:
        session.wait_for_locks = (
            time.monotonic() >= self._skip_locked_until if wait_for_locks is None else wait_for_locks
        )
        commands = [delivery.read for delivery in deliveries if not isinstance(delivery.read, Rejected)]
        stored = self._threads.submit(self._storing.store, session, commands, link.check_open)
        calendars = _CALENDAR in map(_routing_key, deliveries)
        return PendingBatch(deliveries, ids, session, stored, session.wait_for_locks, calendars)

    def _without_set_aside(self, deliveries: list[Delivery], inbox: BatchConsumer) -> list[Delivery]:
        """Set aside messages for the ids of messages set aside before; return the rest."""
        ids = self._set_aside.ids
        behind: list[Delivery] = []
        rest: list[Delivery] = []
        for delivery in deliveries:
            is_behind = not isinstance(delivery.read, Rejected) and delivery.read.about in ids
            (behind if is_behind else rest).append(delivery)
        if behind:
            self._hold(behind, inbox)
        return rest

    def _retry(
        self, batches: deque[PendingBatch], inbox: BatchConsumer, publisher: OutcomePublisher, link: Link
    ) -> bool:
        """Retry the messages that were set aside, concurrently with new ones; return False if the inbox ends."""
        if self._set_aside.held_seconds > self._consumer_timeout.hold_seconds:
            self._return_all(batches, inbox, publisher)
            return False
        waits = False
        if self._retrying is not None:
            if not self._retrying.stored.done():
                return True
            retried = self._retrying
            progress = self._finish_retry(retried, inbox, publisher)
            if progress is None:
                return False
            # Waiting gets the lock even if others lock the row repeatedly.
            waits = not progress and not retried.waits_for_locks
        if self._set_aside:
            deliveries = self._set_aside.next_id(BATCH) if waits else self._set_aside.next(BATCH)
            self._retrying = self._start(deliveries, set(), link, self._retry_session, wait_for_locks=waits)
        else:
            self._retry_session.close()
        return True

    def _finish_retry(self, batch: PendingBatch, inbox: BatchConsumer, publisher: OutcomePublisher) -> int | None:
        """Reply to stored messages, acknowledge them and return their number; None on a stop."""
        stored = batch.stored.result()
        if stored is None:
            return None
        self._retrying = None
        rest, outcomes, _ = self._split(batch, stored)
        if rest:
            self._set_aside.remove(rest)
            self._finish(rest, replace(stored, outcomes=outcomes), inbox, publisher)
        return len(rest)

    def _split(
        self, batch: PendingBatch, stored: StoredBatch
    ) -> tuple[list[Delivery], Sequence[MessageOutcome], list[Delivery]]:
        """Return the stored or rejected messages, the outcomes of the readable ones, and the locked messages."""
        if not any(outcome is LOCKED for outcome in stored.outcomes):
            return batch.deliveries, stored.outcomes, []
        rest, locked, outcomes, stored_outcomes = [], [], [], iter(stored.outcomes)
        for delivery in batch.deliveries:
            if isinstance(delivery.read, Rejected):
                rest.append(delivery)
            elif (outcome := next(stored_outcomes)) is LOCKED:
                locked.append(delivery)
            else:
                rest.append(delivery)
                outcomes.append(outcome)
        if batch.waits_for_locks:
            self._skip_locked_until = time.monotonic() + SKIP_LOCKED_SECONDS
        _locked.warning(count=len(locked), id=locked[0].read.about,
                        do="if it persists, find the open transaction in pg_stat_activity")
        return rest, outcomes, locked

    def _finish_oldest(
        self, batches: deque[PendingBatch], inbox: BatchConsumer, publisher: OutcomePublisher
    ) -> bool:
        """Wait for the oldest batch, reply and acknowledge it; return False if a stop prevented storing it.

        In that case no later batch may be acknowledged either.
        """
        stored = batches[0].stored.result()
        if stored is None:
            return False
        batch = batches.popleft()
        self._free.append(batch.session)
        rest, outcomes, locked = self._split(batch, stored)
        if locked:
            self._hold(locked, inbox)
        if rest:
            self._finish(rest, replace(stored, outcomes=outcomes), inbox, publisher)
        return True

    def _finish(self, batch: list[Delivery], stored: StoredBatch, inbox: BatchConsumer,
                publisher: OutcomePublisher) -> None:
        stored_outcomes = iter(stored.outcomes)
        outcomes = [
            delivery.read if isinstance(delivery.read, Rejected) else next(stored_outcomes) for delivery in batch
        ]
        not_copied = publisher.publish(self._replies(batch, outcomes))
        self.kind.count(batch, outcomes)
        batch_telemetry.log_commands(batch, outcomes, stored.began, stored.ended)
        inbox.ack(batch, not_copied)
        if self._redeliveries:
            self._redeliveries.forget(batch)

    def _replies(self, batch: Sequence[Delivery], outcomes: Sequence[MessageOutcome]) -> list[CommandReply]:
        return _replies(batch, outcomes)

    def _wait_for_alarm(self) -> None:
        """Report that the broker blocks publishers, and wait a little; raise Unavailable on a stop."""
        self._health.missing("rabbitmq", "it blocks publishers: its memory or disk alarm is on")
        self._health.turn()
        if self._stop.wait(0.2):
            raise Unavailable("stopped while the broker blocks publishers")

    def finish(self) -> None:
        """Wait briefly for replies that are not confirmed yet."""
        self._reply_sender.close(STOP_SECONDS)

    def close(self) -> None:
        """Close the threads and the sessions."""
        self._reply_sender.close(0)
        self._threads.shutdown(wait=False)
        for session in (*self._free, self._retry_session):
            session.close()
        if self._redeliveries:
            self._redeliveries.close()


class ResultsConsumer(Consumer):
    """Consumes results of workers, on a separate connection so that a long queue of requests delays none."""

    kind = RESULTS

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        super().__init__(settings, stop, health)
        self._result_reader: ResultReader | None = None

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process stops."""
        # The reader of the previous connection expires when the broker notices that it was lost.
        self._result_reader = None
        super().run(link)

    def _prepare(self, link: Link) -> bool:
        """Register before results are delivered: producers wait for the results that this consumer holds."""
        connected_at = None if self._result_reader is None else self._result_reader.connected_at
        session = self._free[-1]
        self._result_reader = self._storing.when_available(
            session, lambda: ResultReader(session, link.dropped_after, connected_at), link.check_open
        )
        return self._result_reader is not None

    def _turn(self, inbox: BatchConsumer) -> None:
        if self._free and self._result_reader is not None:
            self._result_reader.turn(self._free[-1], inbox, committed=not self._set_aside)

    def _finish(self, batch: list[Delivery], stored: StoredBatch, inbox: BatchConsumer,
                publisher: OutcomePublisher) -> None:
        super()._finish(batch, stored, inbox, publisher)
        reader = self._result_reader
        assert reader is not None  # noqa: S101 - it was registered before the first delivery
        reader.finished(len(batch))
        markers = [delivery.read.id for delivery in batch if isinstance(delivery.read, Marker)]
        if markers and self._free and not self._set_aside:  # otherwise the producer sends another
            reader.read(self._free[-1], inbox, markers)

    def _ended(self, inbox: BatchConsumer) -> None:
        if self._stop:
            try:
                inbox.give_back(STOP_SECONDS)
            except Unavailable:
                return  # producers notice that its heartbeat is missing
        if self._result_reader is not None:
            self._result_reader.leave(self._free[-1])


class DelayConsumer(Consumer):
    """Consumes the delayed messages of one entry exchange, on a separate connection.

    Batches are stored one after the other, so that messages for the same instant keep their order.
    """

    kind = DELAYED
    sessions = 1
    entry, exchange = DELAY_EXCHANGE, DELAYED_EXCHANGE

    @classmethod
    def each(cls, settings: Settings) -> list[type[Consumer]]:
        """Return a consumer class for each entry exchange."""
        additional = [
            type(f"{cls.__name__} {name}", (cls,), {
                "kind": replace(DELAYED, queue=delay_queue(name)), "entry": delay_entry(name), "exchange": name,
            }) for name, _ in settings.delay_exchanges
        ]
        return [cls, *additional]

    def _reader(self, link: Link) -> Callable[[Delivery], Any]:
        return partial(self.kind.read, exchange=self.exchange, frame_max=link.frame_max)

    def _ids(self, deliveries: Sequence[Delivery]) -> set[str]:  # noqa: ARG002 - overrides
        return set()

    def _replies(self, batch: Sequence[Delivery], outcomes: Sequence[MessageOutcome]) -> list[CommandReply]:
        """Reply only to rejected messages: `reply_to` is for the message's receiver."""
        replies = []
        for delivery, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Rejected):
                delivery.properties = decoded(delivery.raw)
                message = reply_to(outcome, _message_id(delivery.properties.message_id))
                body = message.model_dump_json().encode()
                replies.append(CommandReply(delivery, type(message).__name__, body, str(outcome), self.entry))
        return replies


def _connect_for_replies(urls: Sequence[str]) -> Link:
    """Connect to the first broker that is available."""
    problems = []
    for url in urls:
        try:
            return Link(url, "consumer replies")
        except Unavailable as error:
            problems.append(str(error))
    raise Unavailable("; ".join(problems))


def _message_id(message_id: Any) -> str | None:
    """Return the message_id if it is valid UTF-8; otherwise pika leaves it as bytes."""
    return message_id if isinstance(message_id, str) else None


def _replies(batch: Sequence[Delivery], outcomes: Sequence[MessageOutcome]) -> list[CommandReply]:
    """Return the replies to rejected messages and to messages with `reply_to`."""
    replies = []
    for delivery, outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, Rejected):
            message, reason = rejection(outcome, delivery.routing_key, delivery.body), str(outcome)
        elif delivery.properties.reply_to:
            message, reason = reply_to(outcome, delivery.read.about), None
        else:
            continue
        replies.append(CommandReply(delivery, message_type(message), message.model_dump_json().encode(), reason))
    return replies
