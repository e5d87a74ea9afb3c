"""The process AMQP → Postgres: commands, results and delayed messages are stored, or refused with a reason."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from scheduler.commands import batch_telemetry
from scheduler.commands.apply_batch import execute
from scheduler.commands.apply_delayed import execute_delayed, read_delayed
from scheduler.commands.apply_results import execute_results
from scheduler.commands.command_replies import reply_to
from scheduler.commands.decide_commands import LOCKED, MessageOutcome
from scheduler.commands.parse_deliveries import read_command, read_result
from scheduler.commands.redeliveries import Redeliveries
from scheduler.commands.result_reader import ResultReader
from scheduler.commands.set_aside import SetAside
from scheduler.commands.store_batches import BatchStore, DatabaseUnavailable, Execute, StoredBatch, StoreSession
from scheduler.commands.tenancy import Tenancy
from scheduler.domain.errors import Rejected, Unavailable
from scheduler.domain.message_parser import id_in_body
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
from scheduler.rabbit.delivery_parser import Decode, Delivery, decoded, undecoded
from scheduler.rabbit.link import Link
from scheduler.rabbit.reply_sender import CommandReply, ReplyQueues, ReplySender
from scheduler.settings import Settings

log = get_logger(__name__)
_locked = ThrottledWarning(log, "messages set aside: another session has locked their rows")

BATCH = 1000
SESSIONS = 2
SKIP_LOCKED_SECONDS = 5.0
STOP_SECONDS = 1.0  # for the broker to take back what was not stored


@dataclass(slots=True)
class PendingBatch:
    """Commands that are being stored, on a session of their own."""

    deliveries: list[Delivery]
    ids: set[str]
    session: StoreSession
    stored: Future[StoredBatch | None]
    waits_for_locks: bool


@dataclass(frozen=True, slots=True)
class MessageKind:
    """What is taken from a queue: how it is read, stored and counted."""

    queue: str
    read: Callable[..., Any]
    execute: Execute
    count: Callable[[Sequence[Delivery], Sequence[MessageOutcome]], None]
    decode: Decode | None = None


COMMANDS = MessageKind(INBOX_QUEUE, read_command, execute, batch_telemetry.count_commands)
RESULTS = MessageKind(RESULTS_QUEUE, read_result, execute_results, batch_telemetry.count_results)
DELAYED = MessageKind(DELAY_QUEUE, read_delayed, execute_delayed, batch_telemetry.count_delayed, undecoded)


class Consumer:
    """Takes what is waiting, stores it in one transaction, answers, and only then acknowledges.

    While the queue is long two batches are stored at a time, unless they are about the same jobs: Postgres works
    on the one while the other is read and applied.

    Messages about rows that another session keeps locked are set aside, unacknowledged. They are tried again on a
    session of their own: all without waiting, then those about one id waiting as long as any batch, and so on.
    """

    kind = COMMANDS
    sessions = SESSIONS

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        self._settings = settings
        self._stop = stop
        self._health = health
        self._storing = BatchStore(settings, stop, health)
        self._free = [StoreSession(settings.database_url, self.kind.execute) for _ in range(self.sessions)]
        self._retry_session = StoreSession(settings.database_url, self.kind.execute)
        self._threads = ThreadPoolExecutor(self.sessions + 1, thread_name_prefix="storing")
        self._set_aside = SetAside()  # of the present inbox
        self._retrying: PendingBatch | None = None
        self._skip_locked_until = 0.0  # a batch waited for a lock in vain a moment ago: the next don't wait
        self._redeliveries: Redeliveries | None = None  # of a queue that doesn't count them itself

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process shall stop."""
        strangers = self._settings.tenant_by == "user_id" and self._settings.tenant_routes == "prefix"
        queues = ReplyQueues(self._settings.reply_queues, strangers=strangers)
        answers = ReplySender(link, self._wait_for_alarm, queues)
        read = self._reader(link)
        queue_type = self._settings.queue_type
        if queue_type != "quorum":
            self._redeliveries = Redeliveries(
                self._settings.database_url, self._storing, read, queue_may_count=queue_type == "default"
            )
            read = self._redeliveries.read
        while not self._stop and self._prepare(link):
            inbox = BatchConsumer(link, self.kind.queue, self._settings.prefetch, read, self.kind.decode)
            try:
                self._serve(inbox, answers, link)
            except DatabaseUnavailable:
                inbox.give_back()
                self._storing.wait(self._free[-1], link.check_open)
            self._ended(inbox)

    def _prepare(self, link: Link) -> bool:  # noqa: ARG002 - others need it
        """Do what must be done before the first delivery; False on a stop."""
        return True

    def _turn(self, inbox: BatchConsumer) -> None:
        """Do what must be done on every turn of the loop."""

    def _ended(self, inbox: BatchConsumer) -> None:
        """Do what must be done when no more is taken from the inbox, unless the connection was lost."""

    def _reader(self, link: Link) -> Callable[[Delivery], Any]:  # noqa: ARG002 - others ask it
        found = self._settings
        own_users = [*map(user, found.amqp_urls), *found.worker_users]
        tenancy = Tenancy.of(found.tenant_by, own_users, found.tenant_routes)
        return partial(self.kind.read, max_payload_bytes=found.max_payload_bytes, tenancy=tenancy)

    def _serve(self, inbox: BatchConsumer, answers: ReplySender, link: Link) -> None:
        # In the order of delivery: to acknowledge one is to acknowledge all before it.
        batches: deque[PendingBatch] = deque()
        self._forget_set_aside()
        try:
            while not self._stop:
                self._health.turn()
                self._health.found("rabbitmq")
                self._turn(inbox)
                if self._set_aside and not self._retry(inbox, answers, link):
                    return
                idle_seconds = 0.05 if self._set_aside else 0.5
                deliveries = inbox.take(BATCH, timeout=0.0 if batches else idle_seconds)
                if self._redeliveries and not self._redeliveries.read_rest(deliveries, link.check_open):
                    return
                ids = self._ids(deliveries)
                while any(batch.ids & ids for batch in batches):
                    if not self._finish_oldest(batches, inbox, answers):
                        return
                full = len(deliveries) == BATCH
                if self._set_aside:
                    deliveries = self._without_set_aside(deliveries, inbox)
                if deliveries:
                    batches.append(self._start(deliveries, ids, link, self._free.pop()))
                if (
                    batches and (not full or not self._free)
                    and not self._finish_oldest(batches, inbox, answers)
                ):
                    return
            while batches and self._finish_oldest(batches, inbox, answers):
                pass
            if self._retrying is not None:
                self._finish_retry(self._retrying, inbox, answers)
        finally:
            # What they do must not run into what comes next.
            wait([batch.stored for batch in (*batches, *filter(None, [self._retrying]))])
            self._free += [batch.session for batch in batches]
            self._forget_set_aside()

    def _forget_set_aside(self) -> None:
        self._set_aside, self._retrying = SetAside(), None

    def _ids(self, deliveries: Sequence[Delivery]) -> set[str]:
        """Return what these are about: two batches about the same are stored one after the other."""
        return {each.read.about for each in deliveries if not isinstance(each.read, Rejected)}

    def _start(
        self, deliveries: list[Delivery], ids: set[str], link: Link, session: StoreSession,
        *, wait_for_locks: bool | None = None,
    ) -> PendingBatch:
        session.wait_for_locks = (
            time.monotonic() >= self._skip_locked_until if wait_for_locks is None else wait_for_locks
        )
        commands = [each.read for each in deliveries if not isinstance(each.read, Rejected)]
        stored = self._threads.submit(self._storing.store, session, commands, link.check_open)
        return PendingBatch(deliveries, ids, session, stored, session.wait_for_locks)

    def _without_set_aside(self, deliveries: list[Delivery], inbox: BatchConsumer) -> list[Delivery]:
        """Set aside what is about the same as others that are; return the rest."""
        ids = self._set_aside.ids
        behind: list[Delivery] = []
        rest: list[Delivery] = []
        for each in deliveries:
            (behind if not isinstance(each.read, Rejected) and each.read.about in ids else rest).append(each)
        if behind:
            inbox.set_aside(behind)
            self._set_aside.add(behind)
        return rest

    def _retry(self, inbox: BatchConsumer, answers: ReplySender, link: Link) -> bool:
        """Try again what was set aside, beside what comes in; False on a stop."""
        waits = False
        if self._retrying is not None:
            if not self._retrying.stored.done():
                return True
            tried = self._retrying
            progress = self._finish_retry(tried, inbox, answers)
            if progress is None:
                return False
            # Waiting gives them a turn even if others lock the row again and again.
            waits = not progress and not tried.waits_for_locks
        if self._set_aside:
            deliveries = self._set_aside.next_id(BATCH) if waits else self._set_aside.next(BATCH)
            self._retrying = self._start(deliveries, set(), link, self._retry_session, wait_for_locks=waits)
        else:
            self._retry_session.close()
        return True

    def _finish_retry(self, batch: PendingBatch, inbox: BatchConsumer, answers: ReplySender) -> int | None:
        """Answer and acknowledge what was stored, and return how many; None if a stop came before."""
        stored = batch.stored.result()
        if stored is None:
            return None
        self._retrying = None
        rest, verdicts, _ = self._split(batch, stored)
        if rest:
            self._set_aside.remove(rest)
            self._finish(rest, replace(stored, outcomes=verdicts), inbox, answers)
        return len(rest)

    def _split(
        self, batch: PendingBatch, stored: StoredBatch
    ) -> tuple[list[Delivery], Sequence[MessageOutcome], list[Delivery]]:
        """Return what was stored or rejected, the verdicts on what could be read of that, and what is locked."""
        if not any(verdict is LOCKED for verdict in stored.outcomes):
            return batch.deliveries, stored.outcomes, []
        rest, locked, verdicts, told = [], [], [], iter(stored.outcomes)
        for each in batch.deliveries:
            if isinstance(each.read, Rejected):
                rest.append(each)
            elif (verdict := next(told)) is LOCKED:
                locked.append(each)
            else:
                rest.append(each)
                verdicts.append(verdict)
        if batch.waits_for_locks:
            self._skip_locked_until = time.monotonic() + SKIP_LOCKED_SECONDS
        _locked.warning(count=len(locked), id=locked[0].read.about,
                        do="nothing, unless it goes on: then see pg_stat_activity for a transaction left open")
        return rest, verdicts, locked

    def _finish_oldest(self, batches: deque[PendingBatch], inbox: BatchConsumer, answers: ReplySender) -> bool:
        """Wait for the oldest batch, then answer and acknowledge it; False if a stop came before it was stored.

        Then none behind it may be acknowledged either.
        """
        stored = batches[0].stored.result()
        if stored is None:
            return False
        batch = batches.popleft()
        self._free.append(batch.session)
        rest, verdicts, locked = self._split(batch, stored)
        if locked:
            inbox.set_aside(locked)
            self._set_aside.add(locked)
        if rest:
            self._finish(rest, replace(stored, outcomes=verdicts), inbox, answers)
        return True

    def _finish(self, batch: list[Delivery], stored: StoredBatch, inbox: BatchConsumer,
                answers: ReplySender) -> None:
        told = iter(stored.outcomes)
        verdicts = [each.read if isinstance(each.read, Rejected) else next(told) for each in batch]
        refused = answers.give(self._answers(batch, verdicts))
        self.kind.count(batch, verdicts)
        batch_telemetry.log_commands(batch, verdicts, stored.began, stored.ended)
        inbox.ack(batch, refused)
        if self._redeliveries:
            self._redeliveries.forget(batch)

    def _answers(self, batch: Sequence[Delivery], verdicts: Sequence[MessageOutcome]) -> list[CommandReply]:
        return _answers(batch, verdicts)

    def _wait_for_alarm(self) -> None:
        """Say why nothing moves, and sleep a little; a stop ends the wait."""
        self._health.missing("rabbitmq", "it blocks publishers: its memory or disk alarm is on")
        self._health.turn()
        if self._stop.wait(0.2):
            raise Unavailable("stopped while the broker blocks publishers")

    def close(self) -> None:
        """Let go of the threads and the sessions."""
        self._threads.shutdown(wait=False)
        for session in (*self._free, self._retry_session):
            session.close()
        if self._redeliveries:
            self._redeliveries.close()


class ResultsConsumer(Consumer):
    """The same for what workers report, on a connection of its own: however many requests wait, no result does."""

    kind = RESULTS

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart) -> None:
        super().__init__(settings, stop, health)
        self._result_reader: ResultReader | None = None

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost or the process shall stop."""
        # The reader of the connection before is gone when the broker has noticed that it was lost.
        self._result_reader = None
        super().run(link)

    def _prepare(self, link: Link) -> bool:
        """Register before results are delivered: producers wait for what this consumer holds."""
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
                answers: ReplySender) -> None:
        super()._finish(batch, stored, inbox, answers)
        reader = self._result_reader
        assert reader is not None  # noqa: S101 - it was registered before the first delivery
        reader.finished(len(batch))
        markers = [each.read.id for each in batch if isinstance(each.read, Marker)]
        if markers and self._free and not self._set_aside:  # otherwise the producer sends another
            reader.read(self._free[-1], inbox, markers)

    def _ended(self, inbox: BatchConsumer) -> None:
        if self._stop:
            try:
                inbox.give_back(STOP_SECONDS)
            except Unavailable:
                return  # producers notice by this reader's silence
        if self._result_reader is not None:
            self._result_reader.leave(self._free[-1])


class DelayConsumer(Consumer):
    """The same for delayed messages of one entry, on a connection of its own.

    One batch is stored after the other: of two messages for one instant the one that came first goes first.
    """

    kind = DELAYED
    sessions = 1
    entry, exchange = DELAY_EXCHANGE, DELAYED_EXCHANGE

    @classmethod
    def each(cls, settings: Settings) -> list[type[Consumer]]:
        """Return one for each entry."""
        further = [
            type(f"{cls.__name__} {name}", (cls,), {
                "kind": replace(DELAYED, queue=delay_queue(name)), "entry": delay_entry(name), "exchange": name,
            }) for name, _ in settings.delay_exchanges
        ]
        return [cls, *further]

    def _reader(self, link: Link) -> Callable[[Delivery], Any]:
        return partial(self.kind.read, exchange=self.exchange, frame_max=link.frame_max)

    def _ids(self, deliveries: Sequence[Delivery]) -> set[str]:  # noqa: ARG002 - as all consumers
        return set()

    def _answers(self, batch: Sequence[Delivery], verdicts: Sequence[MessageOutcome]) -> list[CommandReply]:
        """Only what is rejected is answered: `reply_to` is meant for whom the message is meant for."""
        found = []
        for delivery, verdict in zip(batch, verdicts, strict=True):
            if isinstance(verdict, Rejected):
                delivery.properties = decoded(delivery.raw)
                message = reply_to(verdict, _named(delivery.properties.message_id))
                body = message.model_dump_json().encode()
                found.append(CommandReply(delivery, type(message).__name__, body, str(verdict), self.entry))
        return found


def _named(message_id: Any) -> str | None:
    """Return a message_id that JSON can hold: what is no UTF-8 pika leaves as bytes."""
    return message_id if isinstance(message_id, str) else None


def _answers(batch: Sequence[Delivery], verdicts: Sequence[MessageOutcome]) -> list[CommandReply]:
    """Word the answers to those that wait for one, and to those that are rejected."""
    found = []
    for delivery, verdict in zip(batch, verdicts, strict=True):
        if isinstance(verdict, Rejected):
            message, reason = reply_to(verdict, id_in_body(delivery.body)), str(verdict)
        elif delivery.properties.reply_to:
            message, reason = reply_to(verdict, delivery.read.about), None
        else:
            continue
        found.append(CommandReply(delivery, type(message).__name__, message.model_dump_json().encode(), reason))
    return found
