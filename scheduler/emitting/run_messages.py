"""Build the AMQP messages of runs."""

from scheduler.domain.instants import rfc3339
from scheduler.domain.messages import AMQP_PRIORITIES
from scheduler.domain.names import DEAD_EXCHANGE, EVENTS_EXCHANGE, RESULTS_QUEUE, due_address
from scheduler.domain.runs.event import due_body, finished_body
from scheduler.domain.runs.marker import MARKER_HEADER
from scheduler.domain.runs.run import Run
from scheduler.domain.targets.base import WorkTarget
from scheduler.domain.targets.offers import no_worker
from scheduler.domain.targets.pools import split_pool
from scheduler.domain.targets.target import class_key, target_of_key
from scheduler.domain.trace_context import MAX_TRACEPARENT, MAX_TRACESTATE
from scheduler.ops import metrics
from scheduler.rabbit.frames import AmqpMessage, DueMessage, dead_run, marker
from scheduler.rabbit.publisher import Receipt

_REASON_CHARACTERS, _REASON_BYTES = 1000, 2000  # fits into the smallest frame that AMQP allows, 4,096 bytes
_UNCONFIRMED = ("unconfirmed: the connection to the broker was lost before it confirmed",
                "the connection to the broker was lost before it confirmed; resending with the same event_id")


UNSENDABLE = "unsendable: the broker does not accept it; its headers or body are too large; see the log"


def run_message(run: Run) -> DueMessage:
    """Return the ScheduleDue of the current attempt. It expires when the attempt may no longer start."""
    occurrence, emitted_at = run.known_occurrence, run.emitted_at
    assert emitted_at is not None  # noqa: S101 - it was emitted
    exchange, key = due_address(occurrence.route, occurrence.work)
    own_key = None if occurrence.work is None else class_key(key, occurrence.priority)
    return DueMessage(
        due_body(run), run.event_id, int(emitted_at.timestamp()), occurrence.correlation_id,
        trace_headers(occurrence.traceparent, occurrence.tracestate),
        str(round(occurrence.policy.start_timeout * 1000)), AMQP_PRIORITIES[occurrence.priority],
        exchange, own_key or key, fallback_key=None if own_key is None else key,
    )


def not_delivered(receipt: Receipt, exchange: str, key: str) -> tuple[str, str]:
    """Return why an event is still due, and advice for the operator."""
    if receipt is Receipt.UNKNOWN:
        return _UNCONFIRMED
    if receipt is Receipt.REFUSED:
        full = f"a queue behind {exchange} is full or unavailable"
        return f"refused: {full}", f"{full}; they are retried"
    if receipt is Receipt.SLOW:
        slow = f"a queue bound to {exchange} for {key} is slow"
        return f"slow: not confirmed yet; {slow}", f"{slow}; they use a separate connection and are retried"
    if receipt is Receipt.UNSENDABLE:
        return UNSENDABLE, "see `message cannot be sent` in the log; they are retried"
    target = target_of_key(key)
    if target is not None and (missing := _no_worker(target, key)) is not None:
        return missing
    return (f"returned: no queue is bound to {exchange} for the routing key {key}",
            f"bind a queue to {exchange} with the routing key {key}; they are retried")


def _no_worker(target: type[WorkTarget], key: str) -> tuple[str, str] | None:
    """Return the reason and the advice if a worker declares the queue of a key; otherwise None."""
    pool = split_pool(key.removeprefix(target.key) if target.by_name else key)[1]
    needs = [] if pool is None else [f"SCHEDULER_WORKER_POOLS lists {pool}"]
    needs += [] if target.offers_in is None else [f"{target.offers_in} lists it"]
    if not needs:
        return None
    return (f"returned: {no_worker(key)}",
            f"start a worker whose {' and whose '.join(needs)}; they are retried")


def count_unoffered(receipt: Receipt, key: str, count: int = 1) -> None:
    """Count events for commands that no worker offers."""
    if receipt is Receipt.RETURNED and (target := target_of_key(key)) is not None and target.by_name:
        metrics.commands_unoffered.inc(count)


def finished_message(run: Run) -> DueMessage:
    """Return the ScheduleFinished. It need not reach a queue."""
    occurrence, finished_at = run.known_occurrence, run.finished_at
    assert finished_at is not None  # noqa: S101 - it has ended
    return DueMessage(
        finished_body(run), None, int(finished_at.timestamp()), occurrence.correlation_id,
        exchange=EVENTS_EXCHANGE, routing_key="finished", kind="ScheduleFinished", mandatory=False,
    )


def dead_message(run: Run) -> AmqpMessage:
    """Return the dead letter of a run: its last event, with the reason."""
    occurrence, finished_at = run.known_occurrence, run.finished_at
    assert finished_at is not None  # noqa: S101 - it has ended
    last = run.attempts[-1].outcome.value if run.attempts else "unknown"
    reason = f"{last} at attempt {run.attempt}" + (f": {run.error}" if run.error else "")
    headers: dict[str, str | int] = {
        "x-dead-reason": _cut(reason), "x-dead-at": rfc3339(finished_at), "x-attempts": run.attempt,
        **(trace_headers(occurrence.traceparent, occurrence.tracestate) or {}),
    }
    return dead_run(
        DEAD_EXCHANGE, due_body(run), run.event_id, headers, correlation_id=occurrence.correlation_id,
        timestamp=int(finished_at.timestamp()), priority=AMQP_PRIORITIES[occurrence.priority],
    )


def _cut(reason: str) -> str:
    return reason[:_REASON_CHARACTERS].encode()[:_REASON_BYTES].decode(errors="ignore")


def marker_message(marker_id: str) -> AmqpMessage:
    """Return a marker for the queue of results."""
    return marker("", RESULTS_QUEUE, marker_id, MARKER_HEADER)


def trace_headers(traceparent: str | None, tracestate: str | None) -> dict[str, str] | None:
    """Return the headers that propagate a trace, if there is one.

    Release 0.2 stored headers of any size. Oversized ones are omitted, because they would prevent the event.
    """
    if traceparent is None and tracestate is None:
        return None
    headers = {}
    if traceparent is not None and len(traceparent) <= MAX_TRACEPARENT:
        headers["traceparent"] = traceparent
    if tracestate is not None and len(tracestate) <= MAX_TRACESTATE:
        headers["tracestate"] = tracestate
    return headers
