"""From an attempt to the HTTP request that it asks for."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from scheduler import __version__
from scheduler.domain.messages import WebhookTarget
from scheduler.domain.strict_json import without_member
from scheduler.domain.targets.headers import sendable
from scheduler.domain.targets.placeholders import UnknownPlaceholder, fill, fill_all, fill_secrets
from scheduler.domain.targets.urls import endpoint, filled_url, host_name
from scheduler.workers.attempt import Attempt
from scheduler.workers.webhook.secrets import SecretMissing, Secrets

USER_AGENT = f"scheduler/{__version__}"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


class Unsendable(Exception):  # noqa: N818 - a verdict about the job, not an accident
    """The request can never be made as the job asks for it; the text says why."""


@dataclass(slots=True)
class Webhook:
    """A target that has been read, and whom it is about."""

    target: WebhookTarget
    endpoint: str
    host: str


@dataclass(slots=True)
class Request:
    """What is sent."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None
    timeout: float


def read_target(target: dict[str, Any]) -> Webhook:
    """Return the webhook that an event asks for; raise Unsendable where it asks for none."""
    try:
        found = WebhookTarget.model_validate(target.get("webhook"))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("target", "webhook", *(str(part) for part in problem["loc"])))
        raise Unsendable(f"{where}: {problem['msg']}") from None
    return Webhook(found, endpoint(found.url), host_name(found.url))


def build(attempt: Attempt, target: WebhookTarget, secrets: Secrets, now: int) -> Request:
    """Return the request of an attempt, signed at `now`; raise Unsendable where something in it is not there."""
    try:
        url = filled_url(target.url, target.query, attempt.event)
        body, kind = (None, None) if target.method == "GET" else _body(attempt, target)
        headers = {
            "User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity",
            "webhook-id": attempt.event_id, "webhook-timestamp": str(now),
        }
        if kind is not None:
            headers["Content-Type"] = kind
        headers |= {name: text for name, text in _trace(attempt).items() if sendable(text)}
        for name, value in target.headers.items():
            _set(headers, name, fill_secrets(value, secrets.text))
        if target.secret is not None:
            headers["webhook-signature"] = secrets.signature(target.secret, attempt.event_id, now, body or b"")
    except (UnknownPlaceholder, SecretMissing) as error:
        raise Unsendable(str(error)) from None
    return Request(target.method, url, headers, body, min(target.timeout, attempt.timeout))


def _body(attempt: Attempt, target: WebhookTarget) -> tuple[bytes, str]:
    if "body" not in target.model_fields_set:
        return without_member(attempt.body, "target"), JSON
    if isinstance(target.body, str):
        return fill(target.body, attempt.event).encode("utf-8", "replace"), TEXT
    filled = fill_all(target.body, attempt.event)
    return json.dumps(filled, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"), JSON


def _set(headers: dict[str, str], name: str, value: str) -> None:
    """A job's own header takes the place of ours, however it is spelt."""
    if not sendable(value):
        raise SecretMissing(f"the secret for the header {name} has line breaks or control characters")
    for known in [each for each in headers if each.lower() == name.lower()]:
        del headers[known]
    headers[name] = value


def _trace(attempt: Attempt) -> dict[str, str]:
    found = {"traceparent": attempt.traceparent, "tracestate": attempt.tracestate}
    return {name: text for name, text in found.items() if text}
