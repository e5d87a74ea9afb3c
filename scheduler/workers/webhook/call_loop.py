"""Run the event loop of webhook calls on its own thread, independent of the broker connection."""

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
_unreadable = ThrottledWarning(log, "message dropped: not an event for a webhook")

TICK_SECONDS = 0.25
MAX_BYTES = 48 * 1024 * 1024  # of held attempts; beyond that, new ones are snoozed
OWN_BYTES = MAX_BYTES // 8  # that each tenant may hold in any case
FULL_SECONDS = 5.0
NO_FREE_SLOT = "no free slot for the endpoint or the tenant"
OTHER_FILES = 256  # open files that are not calls


@dataclass(slots=True, eq=False)
class _HeldAttempt:
    """An attempt in flight or pending."""

    attempt: WorkerAttempt
    webhook: ParsedWebhook
    queue: WorkQueue | None
    tag: int
    ticket: int = 0
    task: "asyncio.Task[None] | None" = None  # its call; the loop has only weak references to tasks


class CallLoop:
    """Makes the calls and reports their results. Only `take` may be called from other threads."""

    def __init__(self, settings: Settings, worker: Worker, reporter: ResultPublisher) -> None:
        total = settings.worker_concurrency
        room = max(20, total // 2)
        # In flight, pending, and as many with unconfirmed results.
        self.most_held = min(total + room + total, 65_535)
        self._secrets = Secrets(settings.webhook_secrets_file)
        self._caller = WebhookCaller(settings)
        self._limiter = EndpointLimiter[_HeldAttempt](total, settings.webhook_host_concurrency, room)
        self._held: dict[tuple[str, int], _HeldAttempt] = {}
        self._bytes = 0
        self._bytes_of: Counter[str] = Counter()  # by tenant
        self._deliveries: deque[tuple[WorkQueue, Delivery]] = deque()
        self._wakeup_scheduled = False
        self._loop = asyncio.new_event_loop()
        self._reports = ResultReporter(self._loop, worker, reporter)
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._ended = threading.Event()
        self._failing: set[str] = set()
        self.ticked_at = time.monotonic()
        _raise_file_limit(total + OTHER_FILES)

    @property
    def in_flight(self) -> int:
        return self._limiter.in_flight

    def start(self) -> None:
        """Start the thread unless it is running."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """End the thread and the calls in flight."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(1.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._main())

    async def _main(self) -> None:
        self._caller.open()
        while not self._ended.is_set():
            self.ticked_at = time.monotonic()
            for held, seconds in list(self._limiter.overdue()):
                self._snooze(held, seconds)
            self._start_next()
            self._reports.report_running()
            self._update_metrics()
            await asyncio.sleep(TICK_SECONDS)
        for held in self._held.values():
            if held.task is not None:
                held.task.cancel()
        await self._caller.close()

    def _update_metrics(self) -> None:
        metrics.webhooks_in_flight.set(self._limiter.in_flight)
        metrics.webhooks_waiting.set(self._limiter.waiting)
        failing = set(self._limiter.failing())
        metrics.webhook_endpoints_failing.set(len(failing))
        for endpoint in sorted(failing - self._failing):
            log.warning("no successful call to an endpoint for an hour", endpoint=endpoint,
                        do="inform its owner, or pause its jobs")
        self._failing = failing

    # Deliveries.

    def take(self, queue: WorkQueue, delivery: Delivery) -> None:
        """Accept a delivery from the I/O thread."""
        self._deliveries.append((queue, delivery))
        if not self._wakeup_scheduled:
            self._wakeup_scheduled = True
            self._loop.call_soon_threadsafe(self._read_all)

    def forget_deliveries(self) -> None:
        """Forget the delivery tags of a lost connection."""
        self._loop.call_soon_threadsafe(self._forget)

    def _forget(self) -> None:
        self._deliveries.clear()
        for held in self._held.values():
            held.queue = None

    def _read_all(self) -> None:
        self._wakeup_scheduled = False
        while self._deliveries:
            self._read(*self._deliveries.popleft())

    def _read(self, queue: WorkQueue, delivery: Delivery) -> None:
        try:
            attempt = read_attempt(delivery)
        except Rejected as error:
            _unreadable.warning(problem=str(error)[:500], do="check which clients publish to schedule.work")
            queue.ack([delivery.tag])
            return
        held = self._held.get(attempt.key)
        if held is not None:
            if held.queue is queue:
                queue.ack([delivery.tag])  # a duplicate; the first is acknowledged when its call has ended
            else:
                held.queue, held.tag = queue, delivery.tag  # redelivered on another connection during its call
            return
        if self._reports.report_again(attempt, queue, delivery.tag):
            return
        try:
            webhook = read_target(attempt.target_text)
        except UnsendableRequest as error:
            failed = WorkOutcome.failed(str(error), retry=False)
            self._reports.report(attempt, failed, "invalid", queue=queue, tag=delivery.tag)
            return
        if self._holds_too_much(attempt.tenant):
            full = WorkOutcome.snoozed(FULL_SECONDS, "the worker holds too many bytes of events")
            self._reports.report(attempt, full, "put_off", queue=queue, tag=delivery.tag)
            return
        held = _HeldAttempt(attempt, webhook, queue, delivery.tag)
        self._held[attempt.key] = held
        self._bytes += len(attempt.body)
        self._bytes_of[attempt.tenant] += len(attempt.body)
        ticket = self._limiter.admit(webhook.endpoint, held, attempt.tenant, queue.rank)
        if isinstance(ticket, float):
            self._snooze(held, ticket)
        elif ticket is not None:
            self._start(ticket, held)

    def _holds_too_much(self, tenant: str) -> bool:
        """Return whether a tenant may hold no more bytes; OWN_BYTES are always available to it."""
        own = self._bytes_of.get(tenant, 0)
        return self._bytes > MAX_BYTES and (own > OWN_BYTES or self._bytes > 2 * MAX_BYTES)

    # Calls.

    def _start(self, ticket: int, held: _HeldAttempt) -> None:
        held.ticket = ticket
        held.task = self._loop.create_task(self._call(held))

    async def _call(self, held: _HeldAttempt) -> None:
        attempt, webhook = held.attempt, held.webhook
        began, started_at = time.monotonic(), datetime.now(UTC)
        self._reports.start(attempt, webhook.endpoint, started_at)
        # If a stop cancels the task here, the event is not acknowledged, and another worker makes the call.
        result = await self._make_call(attempt, webhook)
        self._end(held, result)
        self._reports.report(
            attempt, result.outcome, result.kind, queue=held.queue, tag=held.tag, started_at=started_at
        )
        self._reports.log_end(attempt, result, webhook.endpoint, time.monotonic() - began)

    async def _make_call(self, attempt: WorkerAttempt, webhook: ParsedWebhook) -> CallResult:
        began = time.monotonic()
        try:
            request = build_request(attempt, webhook, self._secrets, int(time.time()))
            result = await self._caller.call(
                request, webhook.endpoint, webhook.host, attempt.max_delay, attempt.tenant
            )
        except UnsendableRequest as error:
            return CallResult(WorkOutcome.failed(str(error), retry=False), "invalid", answered=True)
        except Exception:
            log.exception("webhook call raised", event_id=attempt.event_id, endpoint=webhook.endpoint,
                          do="report this as a bug")
            return CallResult(WorkOutcome.failed("internal error of the worker; see its log"), "invalid",
                              answered=True)
        metrics.webhook_seconds.observe(time.monotonic() - began)
        return result

    def _end(self, held: _HeldAttempt, result: CallResult) -> None:
        succeeded = result.outcome.status is ResultStatus.SUCCEEDED
        self._limiter.end(held.ticket, answered=result.answered, succeeded=succeeded)
        self._release(held)
        self._start_next()

    def _start_next(self) -> None:
        for ticket, pending in self._limiter.next():
            self._start(ticket, pending)

    def _release(self, held: _HeldAttempt) -> None:
        attempt = held.attempt
        del self._held[attempt.key]
        self._bytes -= len(attempt.body)
        self._bytes_of[attempt.tenant] -= len(attempt.body)
        if not self._bytes_of[attempt.tenant]:
            del self._bytes_of[attempt.tenant]

    def _snooze(self, held: _HeldAttempt, seconds: float) -> None:
        self._release(held)
        outcome = WorkOutcome.snoozed(seconds, NO_FREE_SLOT)
        self._reports.report(held.attempt, outcome, "put_off", queue=held.queue, tag=held.tag)


def _raise_file_limit(files: int) -> None:
    """Raise the process's limit of open files, as far as allowed: each call needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files if hard < 0 else min(files, hard), hard))
