"""Views of delayed messages."""

import math
from decimal import Decimal
from typing import Any, Literal

from scheduler.domain.delayed.delay import HeaderValue, Other, Timestamp
from scheduler.postgres.delayed.operator_queries import DelayedDetails, DelayedSummary
from scheduler.rabbit import content_header, header_values
from scheduler.views.base import View, instant
from scheduler.views.dead_letters import body_view


class DelayedView(View):
    """A pending delayed message."""

    id: str
    message_id: str | None
    exchange: str
    routing_key: str
    due_at: str | None
    stored_at: str | None
    size: int
    retries: int
    last_problem: str | None


class WholeDelayedView(DelayedView):
    """A pending delayed message with its properties, headers and body."""

    properties: dict[str, Any]
    headers: dict[str, Any]
    body: Any
    body_encoding: Literal["json", "text", "base64"]


def delayed_view(row: DelayedSummary) -> DelayedView:
    """Return the view for a list."""
    return DelayedView.model_construct(**_fields(row))


def whole_delayed_view(details: DelayedDetails) -> WholeDelayedView:
    """Return the view with properties, headers and body; large bodies are truncated."""
    encoding, body = body_view(details.body)
    try:
        properties, headers = printable(details.properties)
    except content_header.UnreadableContent:  # written by hand
        properties, headers = {}, {}
    return WholeDelayedView.model_construct(
        **_fields(details.listed), properties=properties, headers=headers, body=body, body_encoding=encoding
    )


def _fields(row: DelayedSummary) -> dict[str, Any]:
    return {
        "id": row.id, "message_id": row.message_id, "exchange": row.exchange,
        "routing_key": header_values.as_text(row.routing_key), "due_at": instant(row.due_at),
        "stored_at": instant(row.stored_at), "size": row.size, "retries": row.retries, "last_problem": row.problem,
    }


def printable(raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return properties and headers as JSON values."""
    header = content_header.read(raw)
    headers = {
        header_values.as_text(entry.name): _header_text(content_header.value(header.table, entry), entry)
        for entry in header.entries
    }
    return header_values.properties(header), headers


def _header_text(value: HeaderValue, entry: content_header.HeaderEntry) -> Any:
    match value:
        case Timestamp(seconds):
            return {"timestamp": seconds}
        case Decimal():
            return str(value)
        case Other(kind):
            length = entry.end - entry.value - content_header.LENGTH_SIZE
            return {"kind": {"F": "table", "A": "array", "x": "bytes"}.get(kind, kind), "bytes": length}
        case float() if not math.isfinite(value):
            return str(value)
    return value
