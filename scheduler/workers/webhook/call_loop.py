"""The event loop of the webhooks, on a thread of its own: calls go on whatever becomes of the broker."""

import asyncio
import contextlib
import resource
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime

from scheduler.domain.errors import Rejected
from scheduler.domain.messages import ResultStatus
from scheduler.ops import metrics
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.rabbit.delivery_parser import Delivery
from scheduler.rabbit.work_queue import WorkQueue
from scheduler.settings import Settings
from scheduler.workers.attempt import WorkerAttempt, read_attempt
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.result_publisher import ResultPublisher
from scheduler.workers.webhook.endpoint_limits import EndpointLimiter
from scheduler.workers.webhook.http_call import CallResult, WebhookCaller
from scheduler.workers.webhook.request import ParsedWebhook, UnsendableRequest, build_request, read_target
from scheduler.workers.webhook.result_reports import ResultReporter
from scheduler.workers.webhook.secrets import Secrets
from scheduler.workers.worker import Worker

log = get_logger(__name__)
_unreadable = ThrottledWarning(log, "not an event of a job with a webhook: dropped")

TICK_SECONDS = 0.25
MOST_BYTES = 48 * 1024 * 1024  # of attempts held; beyond, what comes is put off
OWN_BYTES = MOST_BYTES // 8  # that a tenant may hold whatever others do
FULL_SECONDS = 5.0
NO_TURN = "its endpoint or its tenant has no turn for it yet"
FILES_BESIDE = 256  # open files that are not calls


@dataclass(slots=True, eq=False)
class _HeldAttempt:
    """An attempt that this worker has, at work or waiting for its turn."""

    attempt: WorkerAttempt
    webhook: ParsedWebhook
    queue: WorkQueue | None
    tag: int
    ticket: int = 0
    task: "asyncio.Task[None] | None" = None  # its call; a loop itself does not keep its tasks


class CallLoop:
    """Decides whose turn it is, makes the calls and reports them. All but `take` is the loop's own."""

    def __init__(self, settings: Settings, worker: Worker, reporter: ResultPublisher) -> None:
        total = settings.worker_concurrency
        room = max(20, total // 2)
        # Besides those at work and those that wait, as many whose results the broker has not confirmed yet.
        self.most_held = min(total + room + total, 65_535)
        self._secrets = Secrets(settings.webhook_secrets_file)
        self._caller = WebhookCaller(settings)
        self._turns: EndpointLimiter[_HeldAttempt] = EndpointLimiter(total, settings.webhook_host_concurrency,
                                                                     room)
        self._held: dict[tuple[str, int], _HeldAttempt] = {}
        self._bytes = 0
        self._bytes_of: Counter[str] = Counter()  # by tenant
        self._came: deque[tuple[WorkQueue, Delivery]] = deque()
        self._woken = False
        self._loop = asyncio.new_event_loop()
        self._telling = ResultReporter(self._loop, worker, reporter)
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._ended = threading.Event()
        self._failing: set[str] = set()
        self.turned = time.monotonic()
        _allow_files(total + FILES_BESIDE)

    @property
    def in_flight(self) -> int:
        return self._turns.in_flight

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """End the thread and what is in flight."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(1.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._live())

    async def _live(self) -> None:
        self._caller.open()
        while not self._ended.is_set():
            self.turned = time.monotonic()
            for held, seconds in list(self._turns.overdue()):
                self._put_off(held, seconds, NO_TURN)
            self._begin_next()
            self._telling.look()
            self._show()
            await asyncio.sleep(TICK_SECONDS)
        for held in self._held.values():
            if held.task is not None:
                held.task.cancel()
        await self._caller.close()

    def _show(self) -> None:
        metrics.webhooks_in_flight.set(self._turns.in_flight)
        metrics.webhooks_waiting.set(self._turns.waiting)
        failing = set(self._turns.failing())
        metrics.webhook_endpoints_failing.set(len(failing))
        for endpoint in sorted(failing - self._failing):
            log.warning("an endpoint has answered no call well for an hour", endpoint=endpoint,
                        do="tell its owner, or pause its jobs")
        self._failing = failing

    # What the broker hands over.

    def take(self, queue: WorkQueue, delivery: Delivery) -> None:
        """Take a delivery over from the I/O thread."""
        self._came.append((queue, delivery))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._read_all)

    def forget_deliveries(self) -> None:
        """The connection is gone: what it delivered is not ours to acknowledge any more."""
        self._loop.call_soon_threadsafe(self._forget)

    def _forget(self) -> None:
        self._came.clear()
        for held in self._held.values():
            held.queue = None

    def _read_all(self) -> None:
        self._woken = False
        while self._came:
            self._read(*self._came.popleft())

    def _read(self, queue: WorkQueue, delivery: Delivery) -> None:
        try:
            attempt = read_attempt(delivery)
        except Rejected as error:
            _unreadable.warning(problem=str(error)[:500], do="look who else publishes to schedule.work")
            queue.ack([delivery.tag])
            return
        known = self._held.get(attempt.key)
        if known is not None:
            if known.queue is queue:
                queue.ack([delivery.tag])  # it was sent twice; the first is acknowledged when its call has ended
            else:
                known.queue, known.tag = queue, delivery.tag  # it comes by another connection while we are at it
            return
        if self._telling.repeated(attempt, queue, delivery.tag):
            return
        try:
            webhook = read_target(attempt.target_text)
        except UnsendableRequest as error:
            failed = WorkOutcome.failed(str(error), retry=False)
            self._telling.report(attempt, failed, "invalid", queue=queue, tag=delivery.tag)
            return
        if self._holds_too_much(attempt.tenant):
            full = WorkOutcome.snoozed(FULL_SECONDS, "the worker holds too much")
            self._telling.report(attempt, full, "put_off", queue=queue, tag=delivery.tag)
            return
        held = _HeldAttempt(attempt, webhook, queue, delivery.tag)
        self._held[attempt.key] = held
        self._bytes += len(attempt.body)
        self._bytes_of[attempt.tenant] += len(attempt.body)
        turn = self._turns.admit(webhook.endpoint, held, attempt.tenant)
        if isinstance(turn, float):
            self._put_off(held, turn, NO_TURN)
        elif turn is not None:
            self._begin(turn, held)

    def _holds_too_much(self, tenant: str) -> bool:
        """Tell whether a tenant may hold no more bytes here; what others hold leaves it a part of its own."""
        own = self._bytes_of.get(tenant, 0)
        return self._bytes > MOST_BYTES and (own > OWN_BYTES or self._bytes > 2 * MOST_BYTES)

    # The calls.

    def _begin(self, ticket: int, held: _HeldAttempt) -> None:
        held.ticket = ticket
        held.task = self._loop.create_task(self._call(held))

    async def _call(self, held: _HeldAttempt) -> None:
        attempt, webhook = held.attempt, held.webhook
        began, started_at = time.monotonic(), datetime.now(UTC)
        self._telling.begun(attempt, webhook.endpoint, started_at)
        # Where a stop ends the task here, the attempt is not acknowledged, and another worker makes the call.
        called = await self._called(attempt, webhook)
        self._end(held, called)
        self._telling.report(
            attempt, called.outcome, called.kind, queue=held.queue, tag=held.tag, started_at=started_at
        )
        self._telling.ended(attempt, called, webhook.endpoint, time.monotonic() - began)

    async def _called(self, attempt: WorkerAttempt, webhook: ParsedWebhook) -> CallResult:
        began = time.monotonic()
        try:
            request = build_request(attempt, webhook, self._secrets, int(time.time()))
            called = await self._caller.call(
                request, webhook.endpoint, webhook.host, attempt.max_delay, attempt.tenant
            )
        except UnsendableRequest as error:
            return CallResult(WorkOutcome.failed(str(error), retry=False), "invalid", answered=True)
        except Exception:
            log.exception("webhook", event_id=attempt.event_id, endpoint=webhook.endpoint, do="report this")
            return CallResult(WorkOutcome.failed("an error of the worker's own, see its log"), "invalid",
                              answered=True)
        metrics.webhook_seconds.observe(time.monotonic() - began)
        return called

    def _end(self, held: _HeldAttempt, called: CallResult) -> None:
        succeeded = called.outcome.status is ResultStatus.SUCCEEDED
        self._turns.end(held.ticket, answered=called.answered, succeeded=succeeded)
        self._let_go(held)
        self._begin_next()

    def _begin_next(self) -> None:
        for ticket, each in self._turns.next():
            self._begin(ticket, each)

    def _let_go(self, held: _HeldAttempt) -> None:
        attempt = held.attempt
        del self._held[attempt.key]
        self._bytes -= len(attempt.body)
        self._bytes_of[attempt.tenant] -= len(attempt.body)
        if not self._bytes_of[attempt.tenant]:
            del self._bytes_of[attempt.tenant]

    def _put_off(self, held: _HeldAttempt, seconds: float, why: str) -> None:
        self._let_go(held)
        outcome = WorkOutcome.snoozed(seconds, why)
        self._telling.report(held.attempt, outcome, "put_off", queue=held.queue, tag=held.tag)


def _allow_files(wanted: int) -> None:
    """Raise this process's own limit of open files as far as it goes: each call is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
