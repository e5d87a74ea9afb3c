"""The consumer process: stores commands, results and delayed messages in Postgres, or rejects them."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from scheduler.commands import batch_telemetry
from scheduler.commands.apply_batch import apply_commands
from scheduler.commands.command_replies import message_type, rejection, reply_to
from scheduler.commands.decide_commands import MessageOutcome
from scheduler.commands.parse_deliveries import parse_command_delivery
from scheduler.commands.redeliveries import UNREAD, Redeliveries
from scheduler.commands.store_batches import ApplyBatch, BatchStore, DatabaseUnavailable, StoredBatch, StoreSession
from scheduler.commands.tenancy import Tenancy
from scheduler.domain.errors import Rejected, Unavailable
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.message_parser import calendar_about
from scheduler.domain.messages import ScheduleCalendar
from scheduler.domain.names import INBOX_QUEUE
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.processes.locked_messages import LockedMessages, PendingBatch
from scheduler.processes.runtime import Stop
from scheduler.rabbit.address import user
from scheduler.rabbit.batch_consumer import BatchConsumer
from scheduler.rabbit.delivery_parser import Decode, Delivery
from scheduler.rabbit.link import Link, RabbitUnavailable
from scheduler.rabbit.outcome_publisher import CommandReply, OutcomePublisher
from scheduler.rabbit.reply_address import ReplyAddresses
from scheduler.rabbit.reply_sender import ReplySender
from scheduler.settings import Settings

log = get_logger(__name__)
_returned = ThrottledWarning(log, "messages returned to the queue: they were set aside for too long")

BATCH = 1000
SESSIONS = 2
DEAD_BODY_BYTES = 1024 * 1024  # beyond the largest payload: longer bodies of tenants' rejected commands are cut
STOP_SECONDS = 1.0  # for the broker to requeue unstored messages
_CALENDAR = ScheduleCalendar.kind
_routing_key = attrgetter("routing_key")


@dataclass(frozen=True, slots=True)
class MessageKind:
    """A queue, and how its messages are read, stored and counted."""

    queue: str
    read: Callable[..., Any]
    apply: ApplyBatch
    count: Callable[[Sequence[Delivery], Sequence[MessageOutcome]], None]
    decode: Decode | None = None


COMMANDS = MessageKind(INBOX_QUEUE, parse_command_delivery, apply_commands, batch_telemetry.count_commands)


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
        self._locked = LockedMessages()
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
            publisher.forget_refused()
            inbox = BatchConsumer(link, self.kind.queue, self._settings.prefetch, read, self.kind.decode)
            try:
                self._serve(inbox, publisher, link)
            except DatabaseUnavailable:
                inbox.give_back()
                self._storing.wait(self._free[-1], link.check_open)
            else:
                inbox.flush()
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
        self._locked.forget()
        try:
            while not self._stop:
                self._health.turn()
                self._health.found("rabbitmq")
                self._turn(inbox)
                if not self._retry(batches, inbox, publisher, link):
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
                if self._locked:
                    behind, deliveries = self._locked.behind(deliveries)
                    self._hold(behind, inbox)
                if deliveries:
                    batches.append(self._start(deliveries, ids, link, self._free.pop()))
                if (
                    batches and (not full or not self._free)
                    and not self._finish_oldest(batches, inbox, publisher)
                ):
                    return
            while batches and self._finish_oldest(batches, inbox, publisher):
                pass
            if self._locked.retrying is not None:
                self._finish_retry(self._locked.retrying, inbox, publisher)
        except RabbitUnavailable as error:
            self._locked.learn_timeout(str(error))
            raise
        finally:
            # Their transactions must end before the next batches start.
            wait([batch.stored for batch in (*batches, *filter(None, [self._locked.retrying]))])
            self._free += [batch.session for batch in batches]
            self._locked.forget()

    def _take(
        self, batches: deque[PendingBatch], inbox: BatchConsumer, publisher: OutcomePublisher, link: Link
    ) -> list[Delivery] | None:
        """Return the next messages, or one alone if it may crash the consumer; None on a stop."""
        idle_seconds = 0.05 if self._locked else 0.5
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
        retried = self._locked.retrying
        if retried is not None and self._finish_retry(retried, inbox, publisher) is None:
            return
        _returned.warning(do="find the open transaction in pg_stat_activity: each return counts as a delivery")
        inbox.requeue_in_order()

    def _hold(self, deliveries: list[Delivery], inbox: BatchConsumer) -> None:
        """Set messages aside. They do not crash the consumer, regardless of their delivery count."""
        if not deliveries:
            return
        inbox.set_aside(deliveries)
        self._locked.hold(deliveries)
        if self._redeliveries:
            self._redeliveries.forget(deliveries)

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
        session.wait_for_locks = self._locked.new_batches_wait if wait_for_locks is None else wait_for_locks
        commands = [delivery.read for delivery in deliveries if not isinstance(delivery.read, Rejected)]
        stored = self._threads.submit(self._storing.store, session, commands, link.check_open)
        calendars = _CALENDAR in map(_routing_key, deliveries)
        return PendingBatch(deliveries, ids, session, stored, session.wait_for_locks, calendars)

    def _retry(
        self, batches: deque[PendingBatch], inbox: BatchConsumer, publisher: OutcomePublisher, link: Link
    ) -> bool:
        """Retry the messages that were set aside; return False if the inbox ends."""
        if self._locked.must_return or publisher.refused_seconds > self._locked.hold_seconds:
            self._return_all(batches, inbox, publisher)
            return False
        published = publisher.retry_refused()
        if published and (moved := [*published.accepted, *published.not_copied]):
            inbox.ack(moved, published.not_copied)
        return not self._locked or self._retry_locked(inbox, publisher, link)

    def _retry_locked(self, inbox: BatchConsumer, publisher: OutcomePublisher, link: Link) -> bool:
        """Retry messages whose rows were locked, concurrently with new ones; return False if the inbox ends."""
        waits = False
        if (retried := self._locked.retrying) is not None:
            if not retried.stored.done():
                return True
            progress = self._finish_retry(retried, inbox, publisher)
            if progress is None:
                return False
            # Waiting gets the lock even if others lock the row repeatedly.
            waits = not progress and not retried.waits_for_locks
        if self._locked:
            deliveries = self._locked.next_batch(BATCH, one_id=waits)
            self._locked.retrying = self._start(deliveries, set(), link, self._retry_session, wait_for_locks=waits)
        else:
            self._retry_session.close()
        return True

    def _finish_retry(self, batch: PendingBatch, inbox: BatchConsumer, publisher: OutcomePublisher) -> int | None:
        """Reply to stored messages, acknowledge them and return their number; None on a stop."""
        stored = batch.stored.result()
        if stored is None:
            return None
        rest, outcomes = self._locked.finish_retry(batch, stored)
        if rest:
            self._finish(rest, replace(stored, outcomes=outcomes), inbox, publisher)
        return len(rest)

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
        rest, outcomes, locked = self._locked.split(batch, stored)
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
        published = publisher.publish(self._replies(batch, outcomes))
        self.kind.count(batch, outcomes)
        batch_telemetry.log_commands(batch, outcomes, stored.began, stored.ended)
        if published.refused:
            tags = {delivery.tag for delivery in published.refused}
            inbox.set_aside(published.refused)
            batch = [delivery for delivery in batch if delivery.tag not in tags]
        if batch:
            inbox.ack(batch, published.not_copied)
        if self._redeliveries:
            self._redeliveries.forget([*batch, *published.refused])

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


def _connect_for_replies(urls: Sequence[str]) -> Link:
    """Connect to the first broker that is available."""
    problems = []
    for url in urls:
        try:
            return Link(url, "consumer replies")
        except Unavailable as error:
            problems.append(str(error))
    raise Unavailable("; ".join(problems))


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
