"""Run commands from AMQP up to their concurrency, and report their results."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import Self

from scheduler.domain.errors import Rejected
from scheduler.domain.messages import ScheduleRecorded
from scheduler.domain.targets.command import CommandTarget
from scheduler.domain.targets.pools import in_pool
from scheduler.ops import metrics
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.processes.runtime import Stop
from scheduler.rabbit.command_queue import CommandQueue, consume_replies, declare_command
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher
from scheduler.settings import Settings
from scheduler.workers.attempt import WorkerAttempt, read_attempt
from scheduler.workers.command import commands_file
from scheduler.workers.command.outcome import (
    STOPPED,
    SUPERSEDED,
    RefusedCommand,
    build_order,
    decide_outcome,
    partial_output,
)
from scheduler.workers.command.process import CommandEnd, RunningCommand, Supervisors
from scheduler.workers.command.starts import (
    HEARTBEAT,
    REPLY_SECONDS,
    CommandSlots,
    Key,
    PendingStart,
    PendingStarts,
    correlation_id,
    read_correlation_id,
    reserve_slot,
)
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.result_publisher import PendingResult, ResultPublisher
from scheduler.workers.worker import Worker

log = get_logger(__name__)

REPORT_SECONDS = 5.0
BEAT_SECONDS = 2.0  # between heartbeats to the supervisors, whose lease is process.LEASE_SECONDS
DEADLINE_REPORT_SECONDS = 3.0  # delay after the run's deadline, so that the sidecar's `timed_out` is first
_TICK_SECONDS = 0.25
_FLUSH_SECONDS = 3.0


@dataclass(slots=True, eq=False)
class RunningAttempt:
    """An attempt with a running command."""

    offer: CommandSlots
    attempt: WorkerAttempt
    started_at: datetime
    command: RunningCommand
    timeout: float  # seconds: the run's, or the command's if that is shorter
    report_at: float
    reported: CommandEnd | None = None
    ticket: int | None = None


class CommandWorker:
    """Runs the commands of a file. One thread makes all decisions; broker and commands post events to it."""

    @classmethod
    def each(cls, settings: Settings) -> list[type[Self]]:
        """Return this class if there is a commands file, otherwise nothing."""
        return [cls] if settings.commands_file else []

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart, worker: Worker) -> None:
        self._settings = settings
        self._stop = stop
        self._health = health
        self._worker = worker
        offered = commands_file.load(settings.commands_file or "")
        pools = settings.worker_pools
        self._offers = {name: CommandSlots(command, pools) for name, command in offered.items()}
        for name, command in offered.items():
            worker.offer(*(in_pool(f"{CommandTarget.key}{name}", pool) for pool in pools), tenants=command.tenants)
        worker.serve(sum(command.concurrency for command in offered.values()), pools)
        metrics.declare_commands(offered, [in_pool(name, pool) for name in offered for pool in pools])
        self._supervisors = Supervisors()
        self._reporter = ResultPublisher(with_user_id=settings.tenant_by == "user_id")
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._starts = PendingStarts(self._post, self._start_command, worker.name)
        self._running: dict[Key, RunningAttempt] = {}
        self._connected = False
        self._stop_by = self._flush_by = 0.0
        self._finished = threading.Event()
        stop.wait_for(lambda: bool(self._running))
        for loop in (self._process_events, self._send_heartbeats):
            threading.Thread(target=loop, name=f"commands {loop.__name__}", daemon=True).start()

    def run(self, link: Link) -> None:
        """Use one connection to the broker until it is lost or the process has stopped."""
        reply_to = consume_replies(link, partial(self._post, self._on_reply))
        publisher = Publisher(link)
        queues = {
            name: tuple(
                CommandQueue(link, queue, in_pool(name, pool), partial(self._post, self._on_delivery, offer),
                             offer.window, rank=rank)
                for pool in offer.pools
                for queue, rank in declare_command(link, name, pool, self._settings.queue_type).items()
            )
            for name, offer in self._offers.items()
        }
        self._reporter.attach(link, reply_to)
        user_id = link.user if self._settings.tenant_by == "user_id" else None
        self._post(self._attach, queues, publisher, reply_to, user_id)
        try:
            while not self._finished.wait(_TICK_SECONDS):
                link.check_open()
                self._health.found("rabbitmq")
        finally:
            self._reporter.detach()
            self._post(self._detach)

    def finish(self) -> None:
        """Wait until no command runs, with or without a broker."""
        self._finished.wait()
        self._supervisors.close()

    def _send_heartbeats(self) -> None:
        """Send heartbeats to the supervisors, with or without a broker."""
        while not self._finished.wait(BEAT_SECONDS):
            for running in list(self._running.values()):
                running.command.beat()

    def _post(self, handle: Callable[..., None], *event: object) -> None:
        self._events.put(partial(handle, *event))

    def _process_events(self) -> None:
        while not self._stopped():
            with suppress(Empty):
                self._events.get(timeout=_TICK_SECONDS)()
            self._health.turn()
            self._starts.start_overdue()
            for offer in self._offers.values():
                self._start_next(offer)
                self._open_queues(offer)  # a start that was dropped has freed its slot
            if self._connected:
                self._report_running()
                self._reporter.turn()
        self._finished.set()

    def _attach(
        self, queues: dict[str, tuple[CommandQueue, ...]], publisher: Publisher, reply_to: str, user_id: str | None
    ) -> None:
        self._connected = True
        self._starts.attach(publisher, reply_to, user_id)
        for name, offer in self._offers.items():
            offer.attach(queues[name])
            self._open_queues(offer)
        for running in self._running.values():
            running.report_at = 0.0  # the reply tells whether the run is still ours

    def _detach(self) -> None:
        self._connected = False
        self._starts.detach()
        for offer in self._offers.values():
            offer.attach(())
            if offer.tenant_queues is not None:
                offer.tenant_queues.clear()  # the broker redelivers all of them

    def _open_queues(self, offer: CommandSlots) -> None:
        """Take events while there is a slot: first those that wait, in the order of their class, then new ones."""
        if not offer.queues or offer.consuming or self._stop or (offer.full and not offer.several_tenants):
            return
        if offer.several_tenants:
            offer.open()
        elif not offer.fetching:
            offer.fetching = True
            self._fetch(offer, offer.fetch_order())

    def _fetch(self, offer: CommandSlots, left: list[CommandQueue]) -> None:
        if not offer.fetching or (left and left[0] not in offer.queues):
            return  # the connection is lost
        if not left:
            offer.fetching = False
            offer.open()
            return
        fetched = partial(self._post, self._on_fetched, offer)
        left[0].get(fetched, partial(self._post, self._fetch, offer, left[1:]))

    def _on_fetched(self, offer: CommandSlots, queue: CommandQueue, delivery: Delivery) -> None:
        if queue in offer.queues:
            offer.fetching = False
            self._on_delivery(offer, queue, delivery)
            self._open_queues(offer)

    def _on_delivery(self, offer: CommandSlots, queue: CommandQueue, delivery: Delivery) -> None:
        if self._stop or (offer.full and not offer.several_tenants):
            queue.give_back(delivery.tag)  # of several queues, two delivered at the same time
            return
        try:
            attempt = read_attempt(delivery)
        except Rejected as error:
            log.warning("message dropped: not an event for a command", queue=queue.name, problem=str(error),
                        do="check which clients publish to schedule.work")
            queue.acknowledge(delivery.tag)
            return
        if self._is_duplicate(offer, attempt.key):
            queue.acknowledge(delivery.tag)
            return
        try:
            order = build_order(offer.command, attempt, os.environ)
        except RefusedCommand as error:
            outcome = WorkOutcome.failed(str(error), retry=False)
            self._count(offer, attempt, outcome)
            body = attempt.result(outcome, self._worker.name, datetime.now(UTC))
            self._reporter.report([PendingResult(body, then=partial(queue.acknowledge, delivery.tag))])
        else:
            self._admit(PendingStart(offer, attempt, order, queue, delivery.tag))

    def _is_duplicate(self, offer: CommandSlots, key: Key) -> bool:
        pending = () if offer.tenant_queues is None else offer.tenant_queues.pending()
        return key in self._running or key in self._starts or any(start.attempt.key == key for start in pending)

    def _admit(self, start: PendingStart) -> None:
        queues = start.offer.tenant_queues
        if queues is None:
            reserve_slot(start)
            self._starts.announce(start)
        else:
            queues.add(start.attempt.tenant, start, start.queue.rank)
            self._start_next(start.offer)

    def _start_next(self, offer: CommandSlots) -> None:
        """Start the pending events of a shared command that have a free slot, and snooze overdue ones."""
        queues = offer.tenant_queues
        if queues is None or not queues or self._stop or not self._connected:
            return
        while (turn := queues.next()) is not None:
            start = turn[1]
            start.ticket, start.started_at = turn[0], datetime.now(UTC)
            start.reply_by = time.monotonic() + REPLY_SECONDS
            self._starts.announce(start)
        for start, seconds in list(queues.pop_overdue()):
            outcome = WorkOutcome.snoozed(seconds, "the command has no free slot for this tenant")
            self._worker.end(start.attempt, outcome)
            body = start.attempt.result(outcome, self._worker.name)
            self._reporter.report([PendingResult(body, then=partial(start.queue.acknowledge, start.tag))])

    def _on_reply(self, correlation_id: str | None, body: bytes) -> None:
        try:
            status = ScheduleRecorded.model_validate_json(body).status
            key = read_correlation_id(correlation_id)
        except ValueError:
            log.warning("unreadable reply ignored", reply=body[:500].decode(errors="replace"))
            return
        if key in self._starts:
            self._starts.on_reply(key, status)
        elif key in self._running and status == "superseded":
            log.warning("command ended: another worker has the run", event_id=key[0], attempt=key[1])
            self._running[key].command.end(SUPERSEDED)

    def _start_command(self, start: PendingStart) -> None:
        attempt, offer = start.attempt, start.offer
        metrics.commands_taken.labels(start.queue.command).inc()
        self._worker.begin(attempt, offer.command.name, datetime.now(UTC))
        command = self._supervisors.start(start.order, partial(self._post, self._on_end, attempt.key))
        report_at = time.monotonic() + REPORT_SECONDS
        self._running[attempt.key] = RunningAttempt(
            offer, attempt, start.started_at, command, start.order.timeout, report_at, ticket=start.ticket
        )
        metrics.commands_running.set(len(self._running))

    def _report_running(self) -> None:
        now = time.monotonic()
        for running in self._running.values():
            if running.report_at > now:
                continue
            newest, running.report_at = running.command.newest, now + REPORT_SECONDS
            fields = {} if newest is running.reported else {"output": partial_output(newest)}
            running.reported = newest
            body = running.attempt.running(self._worker.name, running.started_at, heartbeat=HEARTBEAT, **fields)
            self._reporter.report([PendingResult(body, correlation_id=correlation_id(running.attempt))])

    def _on_end(self, key: Key, end: CommandEnd) -> None:
        running = self._running.pop(key)
        offer = running.offer
        metrics.commands_running.set(len(self._running))
        offer.used -= 1
        if offer.tenant_queues is not None and running.ticket is not None:
            offer.tenant_queues.end(running.ticket)
            self._start_next(offer)
        self._open_queues(offer)
        outcome = decide_outcome(end, running.timeout)
        self._count(offer, running.attempt, outcome, end)
        if outcome is None:
            return
        report = PendingResult(running.attempt.result(outcome, self._worker.name, running.started_at))
        if end.ended_by == "deadline" and running.timeout == running.attempt.timeout:
            timer = threading.Timer(DEADLINE_REPORT_SECONDS, self._reporter.report, ([report],))
            timer.daemon = True
            timer.start()
        else:
            self._reporter.report([report])

    def _count(
        self, offer: CommandSlots, attempt: WorkerAttempt, outcome: WorkOutcome | None,
        end: CommandEnd | None = None
    ) -> None:
        name = offer.command.name
        self._worker.end(attempt, outcome)
        metrics.commands_ended.labels(name, SUPERSEDED if outcome is None else outcome.status.value).inc()
        if end is not None:
            metrics.command_seconds.labels(name).observe(end.seconds)
            if end.left_behind or end.survivors:
                log.warning("background processes of a command terminated", command=name,
                            left_behind=end.left_behind, survivors=end.survivors, event_id=attempt.event_id)

    def _stopped(self) -> bool:
        """Return whether the stop is complete; on the first calls, initiate it and enforce the grace period."""
        if not self._stop:
            return False
        now = time.monotonic()
        if not self._stop_by:
            self._stop_by, self._flush_by = now + self._settings.stop_grace, now + _FLUSH_SECONDS
            self._starts.give_back()
            for offer in self._offers.values():
                offer.pause()
                for start in [] if offer.tenant_queues is None else offer.tenant_queues.clear():
                    start.queue.give_back(start.tag)
        if self._running:
            self._flush_by = now + _FLUSH_SECONDS
            if now >= self._stop_by:
                for running in self._running.values():
                    running.command.end(STOPPED)
        settled = self._reporter.idle and not self._starts
        return not self._running and (settled or not self._connected or now >= self._flush_by)
