"""Views of dead letters."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from pydantic_core import from_json

from scheduler.domain.delayed.delay import Timestamp
from scheduler.domain.instants import rfc3339
from scheduler.domain.targets.target import mask_target
from scheduler.rabbit.dead_letter import DeadLetter
from scheduler.rabbit.dead_letter_queue import SHOWN_BYTES
from scheduler.views.base import Page, View

_DEEPEST = 20


class DeadView(View):
    """A message in scheduler_dead, and the reason."""

    id: str
    kind: Literal["run", "message"]
    routing_key: str
    exchange: str | None
    reason: str
    at: str | None
    headers: dict[str, Any]
    properties: dict[str, Any]
    body: Any
    body_encoding: Literal["json", "text", "base64"]
    size: int


@dataclass(frozen=True, slots=True)
class DeadPage(Page[DeadView]):
    """Some dead letters, and why the rest of the queue was not read."""

    incomplete: str | None = None
    matched: int = 0  # letters of all pages


def dead_view(letter: DeadLetter) -> DeadView:
    """Return the view of a dead letter, with its body as JSON or text if possible; large bodies are truncated."""
    encoding, body = body_view(letter.body)
    return DeadView.model_construct(
        id=letter.id, kind="run" if letter.is_dead_run else "message", routing_key=letter.routing_key,
        exchange=letter.exchange, reason=letter.reason, at=letter.at, headers=_plain(letter.headers),
        properties=_plain(letter.properties), body=body, body_encoding=encoding, size=letter.size,
    )


def body_view(body: bytes) -> tuple[str, Any]:
    """Return a body as JSON or text if possible; large bodies are truncated."""
    if len(body) <= SHOWN_BYTES:
        try:
            content = json.loads(body, parse_constant=lambda _: None)
            # Half a surrogate pair cannot be encoded, and pydantic cannot write JSON too deep for it to read.
            from_json(json.dumps(content, ensure_ascii=False).encode())
        except (ValueError, RecursionError):
            pass
        else:
            return "json", _without_credentials(content)
    try:
        return "text", body[:SHOWN_BYTES].decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(body[:SHOWN_BYTES]).decode()


def _without_credentials(body: Any) -> Any:
    """Return an event or a request with the literal credentials of its target masked."""
    if isinstance(body, dict) and isinstance(body.get("target"), dict):
        return body | {"target": mask_target(body["target"])}
    return body


def _plain(value: Any, depth: int = 0) -> Any:
    """Return an AMQP value as a JSON value."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {_plain(str(name)): _plain(item, depth + 1) for name, item in value.items()}
    if isinstance(value, Timestamp):
        return {"timestamp": value.seconds}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, datetime):
        return rfc3339(value) if value.tzinfo else f"{value.isoformat()}Z"
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else repr(value)
