"""AMQP → the commands of this machine: taken up to each one's concurrency, run, watched and reported."""

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
from scheduler.domain.names import COMMAND_KEY_PREFIX
from scheduler.ops import metrics
from scheduler.ops.health import HealthPart
from scheduler.ops.logs import get_logger
from scheduler.processes.runtime import Stop
from scheduler.rabbit.command_queue import CommandQueue, consume_replies
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.link import Link
from scheduler.rabbit.publisher import Publisher
from scheduler.settings import Settings
from scheduler.workers import commands_file
from scheduler.workers.attempt import WorkerAttempt, read_attempt
from scheduler.workers.command_fairness import WINDOW
from scheduler.workers.command_outcome import (
    STOPPED,
    SUPERSEDED,
    RefusedCommand,
    order_of,
    outcome_of,
    output_so_far,
)
from scheduler.workers.command_process import CommandEnd, RunningCommand, Supervisors
from scheduler.workers.command_starts import (
    ANSWER_SECONDS,
    HEARTBEAT,
    CommandSlots,
    Key,
    PendingStart,
    PendingStarts,
    about,
    read_about,
)
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.result_publisher import PendingResult, ResultPublisher
from scheduler.workers.worker import Worker

log = get_logger(__name__)

REPORT_SECONDS = 5.0
BEAT_SECONDS = 2.0  # to the supervisors, which wait for running.LEASE_SECONDS
TOLD_LATER_SECONDS = 3.0  # of what took too long: the sidecar's own word, `timed_out`, shall come first
_TURN_SECONDS = 0.25
_FLUSH_SECONDS = 3.0


@dataclass(slots=True, eq=False)
class RunningAttempt:
    """An attempt whose command runs."""

    offer: CommandSlots
    attempt: WorkerAttempt
    started_at: datetime
    command: RunningCommand
    timeout: float  # seconds: the run's, or the command's if that is shorter
    report_at: float
    reported: CommandEnd | None = None
    ticket: int | None = None


class CommandWorker:
    """The work. One thread decides, connected or not; commands and broker tell it what happened."""

    @classmethod
    def each(cls, settings: Settings) -> list[type[Self]]:
        """Return it once if there is a file of commands, else not at all."""
        return [cls] if settings.commands_file else []

    def __init__(self, settings: Settings, stop: Stop, health: HealthPart, worker: Worker) -> None:
        self._settings = settings
        self._stop = stop
        self._health = health
        self._worker = worker
        offered = commands_file.load(settings.commands_file or "")
        self._offers = {name: CommandSlots(command) for name, command in offered.items()}
        self._shared = [offer for offer in self._offers.values() if offer.turns is not None]
        for name, command in offered.items():
            worker.offer(f"{COMMAND_KEY_PREFIX}{name}", tenants=command.tenants)
        metrics.declare_commands(offered)
        self._supervisors = Supervisors()
        self._reporter = ResultPublisher(says_who=settings.tenant_by == "user_id")
        self._news: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._starts = PendingStarts(self._tell, self._begin, worker.name)
        self._at_work: dict[Key, RunningAttempt] = {}
        self._connected = False
        self._stop_by = self._flush_by = 0.0
        self._over = threading.Event()
        stop.wait_for(lambda: bool(self._at_work))
        for act in (self._decide, self._beat):
            threading.Thread(target=act, name=f"commands {act.__name__}", daemon=True).start()

    def run(self, link: Link) -> None:
        """Serve one connection to the broker until it is lost, or the process has stopped."""
        reply_to = consume_replies(link, partial(self._tell, self._answered))
        publisher = Publisher(link)
        queues = {
            name: CommandQueue(link, name, self._settings.queue_type, partial(self._tell, self._delivered, offer),
                               1 if offer.turns is None else WINDOW)
            for name, offer in self._offers.items()
        }
        self._reporter.attach(link, reply_to)
        user_id = link.user if self._settings.tenant_by == "user_id" else None
        self._tell(self._attach, queues, publisher, reply_to, user_id)
        try:
            while not self._over.wait(_TURN_SECONDS):
                link.check_open()
                self._health.found("rabbitmq")
        finally:
            self._reporter.detach()
            self._tell(self._detach)

    def finish(self) -> None:
        """Wait until nothing is at work any more, with or without a broker."""
        self._over.wait()
        self._supervisors.close()

    def _beat(self) -> None:
        """Tell the supervisors that this worker lives, whatever becomes of its broker."""
        while not self._over.wait(BEAT_SECONDS):
            for each in list(self._at_work.values()):
                each.command.beat()

    def _tell(self, act: Callable[..., None], *news: object) -> None:
        self._news.put(partial(act, *news))

    def _decide(self) -> None:
        while not self._stopped():
            with suppress(Empty):
                self._news.get(timeout=_TURN_SECONDS)()
            self._health.turn()
            self._starts.turn()
            for offer in self._shared:
                self._serve(offer)
            if self._connected:
                self._report_running()
                self._reporter.turn()
        self._over.set()

    def _attach(
        self, queues: dict[str, CommandQueue], publisher: Publisher, reply_to: str, user_id: str | None
    ) -> None:
        self._connected = True
        self._starts.attach(publisher, reply_to, user_id)
        for name, offer in self._offers.items():
            offer.queue = queues[name]
            self._go_on(offer)
        for each in self._at_work.values():
            each.report_at = 0.0  # is it still ours?

    def _detach(self) -> None:
        self._connected = False
        self._starts.detach()
        for offer in self._offers.values():
            offer.queue = None
            if offer.turns is not None:
                offer.turns.clear()  # all of it comes again

    def _go_on(self, offer: CommandSlots) -> None:
        if offer.queue is not None and not offer.full and not self._stop:
            offer.queue.open()

    def _delivered(self, offer: CommandSlots, queue: CommandQueue, delivery: Delivery) -> None:
        if self._stop:
            queue.give_back(delivery.tag)
            return
        try:
            attempt = read_attempt(delivery)
        except Rejected as error:
            log.warning("dropped what is no event of a job with a target", queue=queue.name, problem=str(error))
            queue.acknowledge(delivery.tag)
            return
        if self._has(offer, attempt.key):  # the event came twice
            queue.acknowledge(delivery.tag)
            return
        try:
            order = order_of(offer.command, attempt, os.environ)
        except RefusedCommand as error:
            outcome = WorkOutcome.failed(str(error), retry=False)
            self._count(offer, attempt, outcome)
            said = attempt.says(outcome, self._worker.name, datetime.now(UTC))
            self._reporter.report([PendingResult(said, then=partial(queue.acknowledge, delivery.tag))])
        else:
            self._start(PendingStart(offer, attempt, order, queue, delivery.tag))

    def _has(self, offer: CommandSlots, key: Key) -> bool:
        waiting = () if offer.turns is None else offer.turns.waiting()
        return key in self._at_work or key in self._starts or any(each.attempt.key == key for each in waiting)

    def _start(self, start: PendingStart) -> None:
        turns = start.offer.turns
        if turns is None:
            self._starts.announce(start)
        else:
            turns.wait(start.attempt.tenant, start)
            self._serve(start.offer)

    def _serve(self, offer: CommandSlots) -> None:
        """Begin what of a shared command can begin, in turn, and put off what cannot wait for it."""
        turns = offer.turns
        if turns is None or not turns or self._stop or not self._connected:
            return
        while (turn := turns.next()) is not None:
            start = turn[1]
            start.ticket, start.started_at = turn[0], datetime.now(UTC)
            start.answer_by = time.monotonic() + ANSWER_SECONDS
            self._starts.announce(start)
        for start, seconds in list(turns.put_off()):
            outcome = WorkOutcome.snoozed(seconds, "its command has no turn for it yet")
            self._worker.end(start.attempt, outcome)
            said = start.attempt.says(outcome, self._worker.name)
            self._reporter.report([PendingResult(said, then=partial(start.queue.acknowledge, start.tag))])

    def _answered(self, correlation_id: str | None, body: bytes) -> None:
        try:
            status = ScheduleRecorded.model_validate_json(body).status
            key = read_about(correlation_id)
        except ValueError:
            log.warning("an answer that cannot be read", answer=body[:500].decode(errors="replace"))
            return
        if key in self._starts:
            self._starts.answered(key, status)
        elif key in self._at_work and status == "superseded":
            log.warning("ended: the run is no longer this worker's own", event_id=key[0], attempt=key[1])
            self._at_work[key].command.end(SUPERSEDED)

    def _begin(self, start: PendingStart) -> None:
        attempt, offer = start.attempt, start.offer
        metrics.commands_taken.labels(offer.command.name).inc()
        self._worker.begin(attempt, offer.command.name, datetime.now(UTC))
        command = self._supervisors.start(start.order, partial(self._tell, self._ended, attempt.key))
        report_at = time.monotonic() + REPORT_SECONDS
        self._at_work[attempt.key] = RunningAttempt(
            offer, attempt, start.started_at, command, start.order.timeout, report_at, ticket=start.ticket
        )
        metrics.commands_running.set(len(self._at_work))

    def _report_running(self) -> None:
        now = time.monotonic()
        for each in self._at_work.values():
            if each.report_at > now:
                continue
            newest, each.report_at = each.command.newest, now + REPORT_SECONDS
            fields = {} if newest is each.reported else {"output": output_so_far(newest)}
            each.reported = newest
            body = each.attempt.running(self._worker.name, each.started_at, heartbeat=HEARTBEAT, **fields)
            self._reporter.report([PendingResult(body, about=about(each.attempt))])

    def _ended(self, key: Key, ended: CommandEnd) -> None:
        each = self._at_work.pop(key)
        metrics.commands_running.set(len(self._at_work))
        each.offer.taken -= 1
        if each.offer.turns is not None and each.ticket is not None:
            each.offer.turns.end(each.ticket)
            self._serve(each.offer)
        self._go_on(each.offer)
        outcome = outcome_of(ended, each.timeout)
        self._count(each.offer, each.attempt, outcome, ended)
        if outcome is None:
            return
        report = PendingResult(each.attempt.says(outcome, self._worker.name, each.started_at))
        if ended.ended_by == "deadline" and each.timeout == each.attempt.timeout:
            timer = threading.Timer(TOLD_LATER_SECONDS, self._reporter.report, ([report],))
            timer.daemon = True
            timer.start()
        else:
            self._reporter.report([report])

    def _count(
        self, offer: CommandSlots, attempt: WorkerAttempt, outcome: WorkOutcome | None,
        ended: CommandEnd | None = None
    ) -> None:
        name = offer.command.name
        self._worker.end(attempt, outcome)
        metrics.commands_ended.labels(name, SUPERSEDED if outcome is None else outcome.status.value).inc()
        if ended is not None:
            metrics.command_seconds.labels(name).observe(ended.seconds)
            if ended.left_behind or ended.survivors:
                log.warning("a command left processes behind, which were ended", command=name,
                            left_behind=ended.left_behind, survivors=ended.survivors, event_id=attempt.event_id)

    def _stopped(self) -> bool:
        """Whether nothing is to begin, at work or to be told after the stop; sees to it that this comes true."""
        if not self._stop:
            return False
        now = time.monotonic()
        if not self._stop_by:
            self._stop_by, self._flush_by = now + self._settings.stop_grace, now + _FLUSH_SECONDS
            self._starts.give_back()
            for offer in self._offers.values():
                if offer.queue is not None:
                    offer.queue.pause()
                for start in [] if offer.turns is None else offer.turns.clear():
                    start.queue.give_back(start.tag)
        if self._at_work:
            self._flush_by = now + _FLUSH_SECONDS
            if now >= self._stop_by:
                for each in self._at_work.values():
                    each.command.end(STOPPED)
        settled = self._reporter.idle and not self._starts
        return not self._at_work and (settled or not self._connected or now >= self._flush_by)
