"""Metrics, logs and spans for batches of commands, results and delayed messages."""

from collections import Counter
from collections.abc import Iterable, Sequence

from scheduler.commands.decide_commands import MessageOutcome
from scheduler.domain.delayed.message import ReceiveOutcome
from scheduler.domain.errors import Rejected
from scheduler.domain.jobs.definition import Incoming
from scheduler.domain.jobs.job import CommandOutcome
from scheduler.domain.messages import ResultStatus
from scheduler.domain.runs.result import Result
from scheduler.ops import metrics, traces
from scheduler.ops.logs import get_logger
from scheduler.ops.throttled_warnings import ThrottledWarning
from scheduler.ops.trace_types import Traced
from scheduler.rabbit.delivery_parser import Delivery

log = get_logger(__name__)
_rejections = ThrottledWarning(log, "command rejected")


def count_commands(batch: Sequence[Delivery], outcomes: Sequence[MessageOutcome]) -> None:
    """Count stored commands and warn about rejected ones."""
    metrics.batch_size.observe(len(batch))
    queued = cancelled = 0
    for delivery, outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, Rejected):
            _reject(delivery, outcome)
        elif not isinstance(outcome, CommandOutcome):
            continue
        elif outcome.status == "scheduled":
            queued += delivery.routing_key == "request"
        elif outcome.status == "cancelled":
            cancelled += 1
    metrics.jobs_queued.inc(queued)
    metrics.jobs_cancelled.inc(cancelled)


def _reject(delivery: Delivery, outcome: Rejected) -> None:
    metrics.commands_rejected.labels(outcome.reason.value).inc()
    properties = delivery.properties
    _rejections.warning(
        problems=str(outcome)[:1000], command=delivery.routing_key[:100], message_id=properties.message_id,
        correlation_id=properties.correlation_id, do="see x-rejected-reason of the messages in scheduler_dead",
    )


def count_results(batch: Sequence[Delivery], outcomes: Sequence[MessageOutcome]) -> None:
    """Count results and the attempts that they end."""
    metrics.batch_size.observe(len(batch))
    recorded = []
    for delivery, outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, Rejected):
            _reject(delivery, outcome)
        elif isinstance(outcome, str) and isinstance(delivery.read, Result):
            recorded.append((delivery.read, outcome))
    count_recorded(recorded)


def count_recorded(recorded: Iterable[tuple[Result, str]]) -> None:
    """Count results that were not rejected, from AMQP or the API."""
    statuses: Counter[str] = Counter()
    attempts: Counter[ResultStatus] = Counter()
    for result, status in recorded:
        statuses[status] += 1
        if status == "recorded" and result.status is not ResultStatus.RUNNING:
            attempts[result.status] += 1
    for status, number in statuses.items():
        metrics.results.labels(status).inc(number)
    for attempt_status, number in attempts.items():
        metrics.run_attempts.labels(attempt_status.value).inc(number)


def count_delayed(batch: Sequence[Delivery], outcomes: Sequence[MessageOutcome]) -> None:
    """Count stored, dropped and rejected delayed messages."""
    metrics.batch_size.observe(len(batch))
    metrics.delayed_in.inc(outcomes.count(ReceiveOutcome.WAITING))
    for reason in (ReceiveOutcome.DUPLICATE, ReceiveOutcome.CANCELLED):
        if dropped := outcomes.count(reason):
            metrics.delayed_dropped.labels(reason.value).inc(dropped)
    for delivery, outcome in zip(batch, outcomes, strict=True):
        if isinstance(outcome, Rejected):
            _reject(delivery, outcome)


def log_commands(batch: Sequence[Delivery], outcomes: Sequence[MessageOutcome], began: int, ended: int) -> None:
    """Log stored commands at debug level and emit a span for those with a trace; times in nanoseconds."""
    if not log.shows_debug and traces.sink is None:
        return
    traced = []
    for delivery, outcome in zip(batch, outcomes, strict=True):
        incoming = delivery.read
        if not isinstance(incoming, Incoming) or not isinstance(outcome, CommandOutcome):
            continue
        ids = {"job_id": outcome.job.id, "correlation_id": incoming.correlation_id}
        kind = type(incoming.command).__name__
        log.debug("stored", **ids, trace_id=traces.trace_id(incoming.traceparent), command=kind,
                  status=outcome.status, next_run_at=outcome.job.next_run_at)
        if incoming.traceparent is not None:
            attributes = {"command": kind, **{name: value for name, value in ids.items() if value}}
            traced.append(Traced(incoming.traceparent, incoming.tracestate, attributes))
    if traces.sink is not None and traced:
        traces.sink.stored(began, ended, traced)
