"""One connection of a Runner: consumes events, acknowledges them, and publishes their results."""

import contextlib
import logging
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pika
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosed, ChannelWrongStateError

from scheduler.client.executor import HandlerEvent, HandlerFinished, HandlerStarted
from scheduler.client.handlers import UnknownJobType, UnreadableEvent
from scheduler.client.reporter import AttemptReporter
from scheduler.client.results import AttemptReport, NotJson, Snooze
from scheduler.client.retries import RetryQueues
from scheduler.client.work import StopReason, Work, WorkSet, WorkState, identify
from scheduler.domain.instants import rfc3339

log = logging.getLogger(__name__)
Unknown = Literal["retry", "dead", "drop"]
_TURN_SECONDS = 0.25
_MISSING_SECONDS = 5.0  # between checks for a missing queue
_FULL_SECONDS = 0.5  # a full Runner delays the ack of a started event: most handlers return earlier
_FLUSH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """The treatment of failures, and the worker's name for reports."""

    unknown: Unknown
    name: str

    def is_permanent(self, error: BaseException) -> bool:
        """Return whether a retry would not help."""
        return isinstance(error, UnreadableEvent) or (isinstance(error, UnknownJobType) and self.unknown == "dead")

    def drops(self, error: BaseException | None) -> bool:
        """Return whether the event is acknowledged as if it had succeeded."""
        return isinstance(error, UnknownJobType) and self.unknown == "drop"

    def result(self, attempt: AttemptReport, done: HandlerFinished) -> tuple[bytes, bool]:
        """Return the ScheduleResult of an attempt, and whether it succeeded.

        A run whose job type has no handler must end, too.
        """
        times = {"started_at": rfc3339(done.started_at), "finished_at": rfc3339(done.finished_at)}
        error = done.error
        if error is None:
            try:
                return attempt.succeeded(done.returned, **times), True
            except NotJson as not_json:
                error = not_json
        if not isinstance(error, Snooze):
            log.error("attempt %s of event %s failed", attempt.attempt, attempt.event_id, exc_info=error)
        return attempt.failed(error, is_permanent=self.is_permanent(error) or self.drops(error), **times), False


@dataclass(frozen=True, slots=True)
class RunnerState:
    """The parts of a Runner that outlive a connection."""

    works: WorkSet
    reporter: AttemptReporter
    retries: RetryQueues
    policy: FailurePolicy
    news: "queue.SimpleQueue[HandlerEvent]"
    submit: Callable[[Work], None]
    set_ready: Callable[[bool], None]
    prefetch: int


class RunnerSession:
    """Used by one thread. After a loss, events are redelivered, and the next session sends the reports."""

    def __init__(self, connection: pika.BlockingConnection, shared: RunnerState) -> None:
        self._connection = connection
        self._shared = shared
        self._works = shared.works
        self._channel: BlockingChannel | None = None
        self._outgoing: BlockingChannel | None = None
        self._tag: str | None = None
        self._window = 0  # the consumer's prefetch
        self._cancelled = False  # by the broker
        self._closing = False
        self._check_at = 0.0
        self._started: dict[Work, float] = {}  # their `running` is confirmed: when to acknowledge them
        shared.reporter.attach(connection)

    def wake(self) -> None:
        """End the wait in `turn`; from any thread."""
        with contextlib.suppress(AMQPError):  # closed: the next session reads the news
            self._connection.add_callback_threadsafe(lambda: None)

    def turn(self, seconds: float = _TURN_SECONDS) -> None:
        """Run I/O for `seconds`, or until a handler starts or ends."""
        self._connection.process_data_events(seconds)
        self._check_channel()
        self._read_news()
        if self._shared.reporter.busy:
            self._report()
        if self._started:
            self._acknowledge_started()
        self._adjust()

    def _report(self) -> None:
        progress = self._shared.reporter.turn()
        for work in progress.started:
            work.confirmed = True
            self._start(work)
        for work in progress.settled:
            self._settle(work)
        for work in progress.superseded:
            self._supersede(work, "the sidecar has superseded it")

    def drain(self, stop_by: float) -> None:
        """Stop consuming, requeue unstarted events, and wait for handlers until `stop_by`."""
        self._closing = True
        for work in self._works:
            self._requeue(work)
        self._pause()
        while self._busy and time.monotonic() < stop_by:
            self.turn()
        if not self._busy:
            return
        running = [work for work in self._works if work.state is WorkState.RUNNING]
        stopped = [work for work in running if work.stop(StopReason.SHUTDOWN)]
        flush_by = time.monotonic() + _FLUSH_SECONDS
        while any(work.state is WorkState.RUNNING for work in stopped) and time.monotonic() < flush_by:
            self.turn()
        for work in running:
            if work.state is WorkState.RUNNING and work.attempt is not None and work.confirmed:
                # The event is acknowledged: without a result, the next attempt waits for the heartbeat to end.
                work.state = WorkState.ENDED
                self._shared.reporter.end(work, work.attempt.failed(Snooze(0)))
        flush_by = time.monotonic() + _FLUSH_SECONDS
        while not self._shared.reporter.idle and time.monotonic() < flush_by:
            self.turn()

    @property
    def _busy(self) -> bool:
        news = not self._shared.news.empty()
        return news or not self._shared.reporter.idle or any(
            work.state is WorkState.RUNNING for work in self._works
        )

    def _requeue(self, work: Work) -> None:
        unstarted = list(work.later)
        work.later = []
        if work.drop():
            self._works.remove(work)
            unstarted.append(work)
        for dropped in unstarted:
            for tag in dropped.deliveries:
                with self._closed_later():
                    if self._channel is not None:
                        self._channel.basic_nack(tag, requeue=True)

    def lose(self) -> None:
        """Record the loss of the connection."""
        self._shared.set_ready(False)
        self._works.lose_deliveries()

    # Consuming

    def _check_channel(self) -> None:
        """Consume again if the broker closed the channel or cancelled the consumer."""
        if self._channel is not None and self._channel.is_open and not self._cancelled:
            return
        if self._channel is not None:
            log.warning("the broker stopped delivering from %s; consuming again", self._shared.retries.queue)
            self._abandon_channel()
        if not self._closing and time.monotonic() >= self._check_at:
            self._open_channel()

    def _abandon_channel(self) -> None:
        self._shared.set_ready(False)
        self._works.lose_deliveries()
        self._started.clear()
        channel, self._channel, self._tag, self._cancelled = self._channel, None, None, False
        # RabbitMQ 4.3 keeps a cancelled consumer suspended until cancel-ok, which pika never sends.
        if channel is not None and channel.is_open:
            with contextlib.suppress(ChannelClosed, ChannelWrongStateError):
                channel.close()

    def _open_channel(self) -> None:
        if not self._shared.retries.declare(self._connection):
            self._check_at = time.monotonic() + _MISSING_SECONDS
            log.warning("waiting for the queue %s; create it, and bind it to schedule.events",
                        self._shared.retries.queue)
            return
        self._channel = self._connection.channel()
        self._channel.add_on_cancel_callback(lambda _: self._on_cancel())
        self._consume()
        self._shared.set_ready(True)

    def _on_cancel(self) -> None:
        self._cancelled = True

    def _consume(self) -> None:
        """Consume up to `prefetch` events, including events that this Runner already has."""
        assert self._channel is not None  # noqa: S101 - the caller has opened it
        self._window = max(1, self._shared.prefetch - len(self._works))
        self._channel.basic_qos(prefetch_count=self._window)
        self._tag = self._channel.basic_consume(self._shared.retries.queue, self._on_event)

    def _pause(self) -> None:
        if self._channel is not None and self._tag is not None:
            tag, self._tag = self._tag, None
            with self._closed_later():
                self._channel.basic_cancel(tag)

    @property
    def _full(self) -> bool:
        return len(self._works) >= self._shared.prefetch

    def _adjust(self) -> None:
        """Limit the events to `prefetch`: the broker does not count those acknowledged at their start."""
        if self._channel is None or not self._channel.is_open or self._closing:
            return
        if self._tag is not None:
            if self._full and self._works.acknowledged:
                self._pause()
            elif self._window < self._shared.prefetch - len(self._works) and not self._works.waiting:
                self._pause()
                self._resume()
        elif not self._full and not self._works.waiting:
            self._resume()

    def _resume(self) -> None:
        with self._closed_later():
            self._consume()

    def _on_event(
        self, _: BlockingChannel, method: spec.Basic.Deliver, properties: pika.BasicProperties, body: bytes
    ) -> None:
        key, attempt = identify(properties, body, self._shared.policy.name)
        work = Work(key, body, properties, attempt, [method.delivery_tag])
        current = self._works.current(key)
        if method.redelivered and self._works.finished(key):
            self._acknowledge(work)
        elif current is None:
            self._submit(work)
        elif current.key == key:
            self._join(current, work)
        elif attempt is not None and current.attempt is not None:
            self._follow(current, work)
        else:
            current.later.append(work)

    def _submit(self, work: Work) -> None:
        self._works.add(work)
        self._shared.submit(work)

    def _join(self, current: Work, work: Work) -> None:
        """Use one handler for two deliveries of the same attempt."""
        current.deliveries += work.deliveries
        if current.confirmed:
            self._started[current] = 0.0

    def _follow(self, current: Work, work: Work) -> None:
        """Delay a later attempt at a run until the handler of the earlier one has returned."""
        newest = current.later[-1] if current.later else current
        if newest.key == work.key:
            self._join(newest, work)
        elif newest.key[1] > work.key[1]:
            self._acknowledge(work)  # superseded
        elif current.drop():
            self._acknowledge(current)
            self._submit(work)
        else:
            for later in current.later:
                self._acknowledge(later)
            current.later = [work]
            self._supersede(current, f"attempt {work.key[1]} has been delivered")

    def _supersede(self, work: Work, reason: str) -> None:
        self._shared.reporter.forget(work)
        if work.state is WorkState.RUNNING and work.stop_reason is None and not work.stop(StopReason.SUPERSEDED):
            log.warning("attempt %s of event %s still runs, although %s: a handler in a thread cannot be stopped",
                        work.key[1], work.key[0], reason)

    # Settling

    def _read_news(self) -> None:
        while not self._shared.news.empty():
            news = self._shared.news.get_nowait()
            if isinstance(news, HandlerStarted):
                self._shared.reporter.begin(news.work)
            else:
                self._end(news)

    def _end(self, done: HandlerFinished) -> None:
        work = done.work
        if work.state is WorkState.ENDED:
            return  # reported as snoozed when the Runner stopped
        work.state = WorkState.ENDED
        self._started.pop(work, None)
        if work.attempt is not None:
            self._end_tracked(work, work.attempt, done)
        elif done.error is None or self._shared.policy.drops(done.error):
            self._settle(work)
        elif work.stop_reason is StopReason.SHUTDOWN:
            self._works.remove(work)  # redelivered after the connection is closed
        elif work.deliveries:
            self._divert(work, done.error)
            self._settle(work)
        else:
            # The broker redelivers it: a copy in a retry queue would be a duplicate.
            log.error("event %s failed and is redelivered", work.key[0], exc_info=done.error)
            self._next(work)

    def _end_tracked(self, work: Work, attempt: AttemptReport, done: HandlerFinished) -> None:
        stopped = done.error is not None and work.stoppable
        if stopped and work.stop_reason is StopReason.SUPERSEDED:
            log.warning("attempt %s of event %s stopped: the sidecar has superseded it", work.key[1], work.key[0])
            self._settle(work)
        elif stopped and work.stop_reason is StopReason.SHUTDOWN:
            self._shared.reporter.end(work, attempt.failed(Snooze(0)))
        else:
            result, work.succeeded = self._shared.policy.result(attempt, done)
            self._shared.reporter.end(work, result)
            if work.later and not work.succeeded:
                self._next(work)  # the sidecar waits for the later attempt, not for this one

    def _divert(self, work: Work, error: BaseException) -> None:
        # Ack the original only after the copy is confirmed: duplicates are fine, losses are not.
        if self._outgoing is None or not self._outgoing.is_open:
            self._outgoing = self._connection.channel()
            self._outgoing.confirm_delivery()
        target = self._shared.retries.divert(
            self._outgoing, work.body, work.properties, error, final=self._shared.policy.is_permanent(error)
        )
        if isinstance(error, UnknownJobType):  # no handler ran: a traceback would not help
            log.error("event %s was moved to %s: %s", work.key[0], target, error)
        else:
            log.error("event %s failed and was moved to %s", work.key[0], target, exc_info=error)

    def _settle(self, work: Work) -> None:
        """Acknowledge a finished event, and the later attempts of a run that succeeded."""
        self._works.finish(work.key)
        self._acknowledge(work)
        if work.succeeded:
            for later in work.later:
                self._works.finish(later.key)
                self._acknowledge(later)
            work.later = []
        self._next(work)

    def _next(self, work: Work) -> None:
        """Remove an attempt, and start the next attempt at the same event."""
        self._works.remove(work)
        if work.later:
            following, *following.later = work.later
            work.later = []
            self._submit(following)

    def _start(self, work: Work) -> None:
        """Schedule the ack of an attempt: its heartbeat protects it once the broker has its `running`."""
        self._started[work] = time.monotonic() + (_FULL_SECONDS if self._full else 0.0)

    def _acknowledge_started(self) -> None:
        now = time.monotonic()
        for work, at in list(self._started.items()):
            if at <= now:
                del self._started[work]
                if self._full:
                    self._pause()  # before the ack, which allows another delivery
                self._acknowledge(work)

    def _acknowledge(self, work: Work) -> None:
        if work.deliveries and self._channel is not None:
            try:
                for tag in work.deliveries:
                    self._channel.basic_ack(tag)
            except (ChannelClosed, ChannelWrongStateError):
                log.debug("the channel was closed before an ack: the event is redelivered")
            work.deliveries = []

    @staticmethod
    def _closed_later() -> contextlib.suppress:
        """Ignore a closed channel: `turn` reopens it, and the broker redelivers the events."""
        return contextlib.suppress(ChannelClosed, ChannelWrongStateError)
