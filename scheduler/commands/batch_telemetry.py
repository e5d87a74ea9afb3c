"""What an operator hears of a batch of commands: counts, a warning of what was rejected, debug lines, spans."""

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


def count_commands(batch: Sequence[Delivery], verdicts: Sequence[MessageOutcome]) -> None:
    """Count what was stored, and warn of what was rejected."""
    metrics.batch_size.observe(len(batch))
    queued = cancelled = 0
    for delivery, verdict in zip(batch, verdicts, strict=True):
        if isinstance(verdict, Rejected):
            _reject(delivery, verdict)
        elif not isinstance(verdict, CommandOutcome):
            continue
        elif verdict.status == "scheduled":
            queued += delivery.routing_key == "request"
        elif verdict.status == "cancelled":
            cancelled += 1
    metrics.jobs_queued.inc(queued)
    metrics.jobs_cancelled.inc(cancelled)


def _reject(delivery: Delivery, verdict: Rejected) -> None:
    metrics.commands_rejected.labels(verdict.reason.value).inc()
    properties = delivery.properties
    _rejections.warning(
        problems=str(verdict)[:1000], command=delivery.routing_key[:100], message_id=properties.message_id,
        correlation_id=properties.correlation_id, do="see x-rejected-reason of the messages in scheduler_dead",
    )


def count_results(batch: Sequence[Delivery], verdicts: Sequence[MessageOutcome]) -> None:
    """Count what became of results, and of the attempts that they end."""
    metrics.batch_size.observe(len(batch))
    taken = []
    for delivery, verdict in zip(batch, verdicts, strict=True):
        if isinstance(verdict, Rejected):
            _reject(delivery, verdict)
        elif isinstance(verdict, str) and isinstance(delivery.read, Result):
            taken.append((delivery.read, verdict))
    count_taken(taken)


def count_taken(taken: Iterable[tuple[Result, str]]) -> None:
    """Count what became of results that were not rejected, however they came."""
    statuses: Counter[str] = Counter()
    outcomes: Counter[ResultStatus] = Counter()
    for result, status in taken:
        statuses[status] += 1
        if status == "recorded" and result.status is not ResultStatus.RUNNING:
            outcomes[result.status] += 1
    for status, number in statuses.items():
        metrics.results.labels(status).inc(number)
    for outcome, number in outcomes.items():
        metrics.run_attempts.labels(outcome.value).inc(number)


def count_delayed(batch: Sequence[Delivery], verdicts: Sequence[MessageOutcome]) -> None:
    """Count what became of delayed messages."""
    metrics.batch_size.observe(len(batch))
    metrics.delayed_in.inc(verdicts.count(ReceiveOutcome.WAITING))
    for why in (ReceiveOutcome.DUPLICATE, ReceiveOutcome.CANCELLED):
        if dropped := verdicts.count(why):
            metrics.delayed_dropped.labels(why.value).inc(dropped)
    for delivery, verdict in zip(batch, verdicts, strict=True):
        if isinstance(verdict, Rejected):
            _reject(delivery, verdict)


def log_commands(batch: Sequence[Delivery], verdicts: Sequence[MessageOutcome], began: int, ended: int) -> None:
    """Show each stored command: a debug line, and a span where it belongs to a trace; times in nanoseconds."""
    if not log.shows_debug and traces.sink is None:
        return
    traced = []
    for delivery, verdict in zip(batch, verdicts, strict=True):
        incoming = delivery.read
        if not isinstance(incoming, Incoming) or not isinstance(verdict, CommandOutcome):
            continue
        ids = {"job_id": verdict.job.id, "correlation_id": incoming.correlation_id}
        kind = type(incoming.command).__name__
        log.debug("stored", **ids, trace_id=traces.trace_id(incoming.traceparent), command=kind,
                  status=verdict.status, next_run_at=verdict.job.next_run_at)
        if incoming.traceparent is not None:
            attributes = {"command": kind, **{name: value for name, value in ids.items() if value}}
            traced.append(Traced(incoming.traceparent, incoming.tracestate, attributes))
    if traces.sink is not None and traced:
        traces.sink.stored(began, ended, traced)
