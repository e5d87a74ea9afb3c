"""AMQP headers and properties of each message, for the AsyncAPI document."""

from typing import Any

from scheduler.client.retries import ATTEMPT
from scheduler.domain.handler_catalogue import HANDLERS_HEADER
from scheduler.domain.messages import COMMAND_MODELS, RESULT_MODELS
from scheduler.domain.messages.workers import OFFER_TENANTS_HEADER
from scheduler.domain.worker_facts import FACTS_HEADER

_COMMANDS = {model.__name__ for model in (*COMMAND_MODELS.values(), *RESULT_MODELS.values())}
_TEXT = {"type": "string"}
_TIME = {"type": "string", "format": "date-time"}
_TRACE = {
    "traceparent": _TEXT | {"description": "W3C trace context; a request's is propagated to its events."},
    "tracestate": _TEXT | {"description": "As traceparent."},
}
_REJECTED = {
    "x-rejected-reason": _TEXT | {"description": "Every problem found, as `field: problem; …`."},
    "x-rejected-at": _TIME,
    "x-dropped-headers": _TEXT | {"description": "Headers that did not fit into the frame."},
    "x-original-expiration": _TEXT | {"description": "The command's own `expiration`, which is dropped."},
    "x-original-user-id": _TEXT | {"description": "The command's own `user_id`, which is dropped."},
}
_DEAD = {
    "x-dead-reason": _TEXT | {"description": "For a dead run, under `due`: its reason."},
    "x-dead-at": _TIME,
    "x-attempts": {"type": "integer", "minimum": 1},
}
_MILLISECONDS = {"type": ["integer", "number", "string"]}
_DELAYED = {
    "x-deliver-at": _TIME | {"description": "The time of delivery; or an AMQP timestamp. If several headers "
                             "are set, the first in this order counts."},
    "x-opt-delivery-time": _MILLISECONDS | {"description": "The time of delivery, in milliseconds since 1970."},
    "x-opt-delivery-delay": _MILLISECONDS | {"description": "As x-delay."},
    "x-delay": _MILLISECONDS | {"description": "Milliseconds after it is stored; negated on delivery."},
}
_WORKER = {
    OFFER_TENANTS_HEADER: _TEXT | {"description": "JSON: for each offer, a list of the tenants that may use it."},
    HANDLERS_HEADER: _TEXT | {"description": "JSON: the types that its handlers serve, as in `GET /types`."},
    FACTS_HEADER: _TEXT | {"description": "JSON: its platform, its pools, its capacity."},
}
_UNHANDLED = {
    ATTEMPT: {"type": "integer", "minimum": 1, "description": "Number of failed handler calls."},
    "x-error": _TEXT,
    "x-traceback": _TEXT | {"description": "In the dead queue only."},
    "x-failed-at": _TIME | {"description": "In the dead queue only."},
}
_PERSISTENT = {"delivery_mode": {"const": 2}, "content_type": {"const": "application/json"}}
_CORRELATION = {"correlation_id": _TEXT | {"description": "The command's own, if it had one."}}
_STAMP = {"timestamp": {"type": "integer", "description": "Seconds since 1970."}}


def headers(message: str) -> dict[str, Any]:
    """Return the schema of a message's headers; others are neither needed nor harmful."""
    match message:
        case "DeadLetter":
            return _object(_TRACE | _REJECTED | _DEAD)
        case "DelayedMessage":
            return _object(_DELAYED)
        case "UnhandledDue":
            return _object(_TRACE | _UNHANDLED, [ATTEMPT, "x-error"])
        case "ScheduleRequest" | "ScheduleDue":
            return _object(_TRACE)
        case "ScheduleWorker":
            return _object(_WORKER)
        case _:
            return _object({})


def properties(message: str) -> dict[str, Any]:
    """Return the schema of a message's AMQP properties, for which AsyncAPI has no dedicated place."""
    if message in _COMMANDS:
        return _object({
            **_PERSISTENT,
            "type": {"const": message, "description": "Optional; checked if present."},
            "reply_to": _TEXT | {"description": "Optional: the queue for the reply."},
            "correlation_id": _TEXT | {"description": "Optional: copied to replies and events."},
        })
    if message == "DelayedMessage":
        text = "If it is a UUID, the message can be cancelled by it, and is delivered once."
        return _object({"message_id": _TEXT | {"description": text}})
    if message == "DeadLetter":
        return _object({"delivery_mode": {"const": 2}})
    sent = _PERSISTENT | _CORRELATION | _STAMP | {"app_id": {"const": "scheduler"}}
    if message in ("ScheduleDue", "UnhandledDue"):
        event_id = {"type": "string", "format": "uuid", "description": "The event_id: drop duplicates by it."}
        expiration = _TEXT | {"description": "For a tracked job: its `start_timeout` in milliseconds."}
        priority = {"enum": [9, 5, 1], "description": "high, normal or low; absent if the request has none."}
        event = {"type": {"const": "ScheduleDue"}, "message_id": event_id, "expiration": expiration,
                 "priority": priority}
        return _object(sent | event, ["message_id"])
    if message in ("ScheduleMissed", "ScheduleReplanned"):
        text = "Its id." if message == "ScheduleMissed" else "The same if the message is published again."
        sent = sent | {"message_id": {"type": "string", "format": "uuid", "description": text}}
    return _object(sent | {"type": {"const": message}}, ["type"])


def _object(members: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": members}
    return schema | ({"required": required} if required else {})
