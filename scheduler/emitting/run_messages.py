"""The messages of a run, as AMQP has them."""

from scheduler.domain.instants import rfc3339
from scheduler.domain.messages import AMQP_PRIORITIES
from scheduler.domain.names import COMMAND_KEY_PREFIX, DEAD_EXCHANGE, EVENTS_EXCHANGE, RESULTS_QUEUE, due_address
from scheduler.domain.runs.event import due_body, finished_body
from scheduler.domain.runs.marker import MARKER_HEADER
from scheduler.domain.runs.run import Run
from scheduler.domain.trace_context import MAX_TRACEPARENT, MAX_TRACESTATE
from scheduler.ops import metrics
from scheduler.rabbit.frames import AmqpMessage, DueMessage, dead_run, marker
from scheduler.rabbit.publisher import Receipt

_REASON_CHARACTERS, _REASON_BYTES = 1000, 2000  # fits into the smallest frame that AMQP allows, 4,096 bytes
_UNANSWERED = ("unconfirmed: the broker went away before it answered",
               "the broker went away before it answered; they are sent again, with the same event_id")


UNSENDABLE = "unsendable: the broker does not accept it; its headers or body are too large; see the log"


def run_message(run: Run) -> DueMessage:
    """Return the ScheduleDue of the current attempt: it expires when nobody may begin it any more."""
    occurrence, emitted_at = run.occurrence, run.emitted_at
    assert occurrence is not None  # noqa: S101 - only what is known is emitted
    assert emitted_at is not None  # noqa: S101 - as above
    return DueMessage(
        due_body(run), run.event_id, int(emitted_at.timestamp()), occurrence.correlation_id,
        trace_headers(occurrence.traceparent, occurrence.tracestate),
        str(round(occurrence.policy.start_timeout * 1000)), AMQP_PRIORITIES[occurrence.priority],
        *due_address(occurrence.route, occurrence.work),
    )


def not_delivered(receipt: Receipt, exchange: str, key: str) -> tuple[str, str]:
    """Say why an event is still due, and what to do about it."""
    if receipt is Receipt.UNKNOWN:
        return _UNANSWERED
    if receipt is Receipt.REFUSED:
        full = f"a queue behind {exchange} is full or unavailable"
        return f"refused: {full}", f"{full}; they are tried again"
    if receipt is Receipt.SLOW:
        slow = f"a queue bound to {exchange} for {key} is slow"
        return f"slow: not confirmed yet; {slow}", f"{slow}; they use a separate connection and are retried"
    if receipt is Receipt.UNSENDABLE:
        return UNSENDABLE, "see `message cannot be sent` in the log; they are tried again"
    if key.startswith(COMMAND_KEY_PREFIX):
        return (f"returned: no worker offers the command {key.removeprefix(COMMAND_KEY_PREFIX)}",
                "start a worker whose SCHEDULER_COMMANDS_FILE lists it; they are tried again")
    return (f"returned: no queue is bound to {exchange} for the routing key {key}",
            f"bind a queue to {exchange} with the routing key {key}; they are tried again")


def count_unoffered(receipt: Receipt, key: str, count: int = 1) -> None:
    """Count events for commands that no worker offers."""
    if receipt is Receipt.RETURNED and key.startswith(COMMAND_KEY_PREFIX):
        metrics.commands_unoffered.inc(count)


def finished_message(run: Run) -> DueMessage:
    """Return the ScheduleFinished; nobody need listen."""
    occurrence, finished_at = run.occurrence, run.finished_at
    assert occurrence is not None  # noqa: S101 - only what is known ends
    assert finished_at is not None  # noqa: S101 - it has ended
    return DueMessage(
        finished_body(run), None, int(finished_at.timestamp()), occurrence.correlation_id,
        exchange=EVENTS_EXCHANGE, routing_key="finished", kind="ScheduleFinished", mandatory=False,
    )


def dead_message(run: Run) -> AmqpMessage:
    """Return the dead letter of a run that was given up: its last event, with why."""
    occurrence, finished_at = run.occurrence, run.finished_at
    assert occurrence is not None  # noqa: S101 - only what is known ends
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
    """Return a marker, which goes straight to the queue of results."""
    return marker("", RESULTS_QUEUE, marker_id, MARKER_HEADER)


def trace_headers(traceparent: str | None, tracestate: str | None) -> dict[str, str] | None:
    """Return the headers that propagate a trace, if there is one.

    Release 0.2 stored them whatever their size, and they must not stop the event: an oversized one is left out.
    """
    if traceparent is None and tracestate is None:
        return None
    headers = {}
    if traceparent is not None and len(traceparent) <= MAX_TRACEPARENT:
        headers["traceparent"] = traceparent
    if tracestate is not None and len(tracestate) <= MAX_TRACESTATE:
        headers["tracestate"] = tracestate
    return headers
