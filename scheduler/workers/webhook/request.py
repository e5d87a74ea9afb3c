"""From an attempt to the HTTP request that it asks for."""

import json
from dataclasses import dataclass
from functools import lru_cache

from pydantic import ValidationError

from scheduler import __version__
from scheduler.domain.messages import WebhookTarget
from scheduler.domain.targets.headers import sendable
from scheduler.domain.targets.placeholders import UnknownPlaceholder, fill, fill_all, fill_secrets
from scheduler.domain.targets.urls import endpoint, filled_url, host_name
from scheduler.workers.attempt import WorkerAttempt
from scheduler.workers.webhook.redaction import Redaction, redaction_of
from scheduler.workers.webhook.secrets import CallSecrets, SecretMissing, Secrets

USER_AGENT = f"scheduler/{__version__}"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


class UnsendableRequest(Exception):  # noqa: N818 - a verdict about the job, not an accident
    """The request can never be made as the job asks for it; the text says why."""


@dataclass(frozen=True, slots=True)
class ParsedWebhook:
    """A target that has been read: whom it is about, and what of its request is the same each time."""

    target: WebhookTarget
    endpoint: str
    host: str
    url: str | None  # without placeholders
    headers: dict[str, str]
    body_kind: str | None


@dataclass(slots=True)
class WebhookRequest:
    """What is sent."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None
    timeout: float
    redaction: Redaction | None = None  # of the secrets in it; None if it has none


@lru_cache(maxsize=1024)
def read_target(text: str) -> ParsedWebhook:
    """Return the webhook that a target, as JSON text, asks for; raise UnsendableRequest where it asks for none."""
    try:
        found = WebhookTarget.model_validate(json.loads(text).get("webhook"))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("target", "webhook", *(str(part) for part in problem["loc"])))
        raise UnsendableRequest(f"{where}: {problem['msg']}") from None
    kind = None if found.method == "GET" else _kind(found)
    headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
    if kind is not None:
        headers["Content-Type"] = kind
    for name in found.headers:
        # A job's own header takes the place of ours, however it is spelt.
        for known in [each for each in headers if each.lower() == name.lower()]:
            del headers[known]
    headers |= {name: value for name, value in found.headers.items() if "{{" not in value}
    plain = not any("{{" in part for part in (found.url, *found.query.values()))
    url = filled_url(found.url, found.query, {}) if plain else None
    return ParsedWebhook(found, endpoint(found.url), host_name(found.url), url, headers, kind)


def _kind(target: WebhookTarget) -> str:
    return TEXT if "body" in target.model_fields_set and isinstance(target.body, str) else JSON


def build_request(attempt: WorkerAttempt, webhook: ParsedWebhook, secrets: Secrets, now: int) -> WebhookRequest:
    """Return the request of an attempt, signed at `now`. Raises UnsendableRequest if a value is missing."""
    target = webhook.target
    try:
        url = webhook.url or filled_url(target.url, target.query, attempt.event)
        body = None if webhook.body_kind is None else _body(attempt, target)
        headers = {"webhook-id": attempt.event_id, "webhook-timestamp": str(now), **webhook.headers}
        usable = secrets.for_call(attempt.tenant, url)
        if target.headers:
            headers |= _with_secrets(target, usable)
        if attempt.traceparent is not None:
            headers = _trace(attempt) | headers
        if target.secret is not None:
            headers["webhook-signature"] = usable.signature(target.secret, attempt.event_id, now, body or b"")
    except (UnknownPlaceholder, SecretMissing) as error:
        raise UnsendableRequest(str(error)) from None
    redaction = redaction_of(usable.used) if usable.used else None
    return WebhookRequest(target.method, url, headers, body, min(target.timeout, attempt.timeout), redaction)


def _body(attempt: WorkerAttempt, target: WebhookTarget) -> bytes:
    if "body" not in target.model_fields_set:
        return attempt.rest
    if isinstance(target.body, str):
        return fill(target.body, attempt.event).encode("utf-8", "replace")
    filled = fill_all(target.body, attempt.event)
    return json.dumps(filled, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _with_secrets(target: WebhookTarget, secrets: CallSecrets) -> dict[str, str]:
    found = {name: fill_secrets(value, secrets.header) for name, value in target.headers.items() if "{{" in value}
    for name, value in found.items():
        if not sendable(value):
            raise SecretMissing(f"the secret for the header {name} has line breaks or control characters")
    return found


def _trace(attempt: WorkerAttempt) -> dict[str, str]:
    found = {"traceparent": attempt.traceparent, "tracestate": attempt.tracestate}
    return {name: text for name, text in found.items() if text and sendable(text)}
