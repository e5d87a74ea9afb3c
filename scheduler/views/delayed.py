"""A delayed message as people see it."""

from typing import Any, Literal

from scheduler.postgres.delayed.reads import Listed, Shown
from scheduler.rabbit import content
from scheduler.views.base import View, instant
from scheduler.views.dead import body_view


class DelayedView(View):
    """A message that waits to come out."""

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
    """The same, with what it says."""

    properties: dict[str, Any]
    headers: dict[str, Any]
    body: Any
    body_encoding: Literal["json", "text", "base64"]


def delayed_view(row: Listed) -> DelayedView:
    """Return one as a list shows it."""
    return DelayedView.model_construct(**_fields(row))


def whole_delayed_view(found: Shown) -> WholeDelayedView:
    """Return one with its properties, its headers and the beginning of its body, as JSON or text if it is that."""
    encoding, body = body_view(found.body)
    try:
        properties, headers = content.shown(found.properties)
    except content.Unreadable:  # written by hand
        properties, headers = {}, {}
    return WholeDelayedView.model_construct(
        **_fields(found.listed), properties=properties, headers=headers, body=body, body_encoding=encoding
    )


def _fields(row: Listed) -> dict[str, Any]:
    return {
        "id": row.id, "message_id": row.message_id, "exchange": row.exchange,
        "routing_key": row.routing_key.decode("utf-8", "backslashreplace"), "due_at": instant(row.due_at),
        "stored_at": instant(row.stored_at), "size": row.size, "retries": row.retries, "last_problem": row.problem,
    }
