"""Build the HTTP request of an attempt."""

import json
from dataclasses import dataclass
from functools import lru_cache

from pydantic import ValidationError

from scheduler import __version__
from scheduler.domain.targets.headers import sendable
from scheduler.domain.targets.placeholders import UnknownPlaceholder, fill, fill_all, fill_secrets
from scheduler.domain.targets.urls import endpoint, filled_url, host_name
from scheduler.domain.targets.webhook import WebhookTarget
from scheduler.workers.attempt import WorkerAttempt
from scheduler.workers.webhook.redaction import Redaction, redaction_of
from scheduler.workers.webhook.secrets import CallSecrets, SecretMissing, Secrets

USER_AGENT = f"scheduler/{__version__}"
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


class UnsendableRequest(Exception):  # noqa: N818 - the job's fault, not an error here
    """The job's request can never be sent; the message is the reason."""


@dataclass(frozen=True, slots=True)
class ParsedWebhook:
    """A validated target, and the parts of its request that are the same for every attempt."""

    target: WebhookTarget
    endpoint: str
    host: str
    url: str | None  # without placeholders
    headers: dict[str, str]
    content_type: str | None


@dataclass(slots=True)
class WebhookRequest:
    """The HTTP request to send."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None
    timeout: float
    redaction: Redaction | None = None  # None if the request has no secrets


@lru_cache(maxsize=1024)
def read_target(text: str) -> ParsedWebhook:
    """Parse the JSON of a target. Raises UnsendableRequest if it is not a valid webhook."""
    try:
        target = WebhookTarget.model_validate(json.loads(text).get("webhook"))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("target", "webhook", *(str(part) for part in problem["loc"])))
        raise UnsendableRequest(f"{where}: {problem['msg']}") from None
    content_type = None if target.method == "GET" else _content_type(target)
    headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
    if content_type is not None:
        headers["Content-Type"] = content_type
    for name in target.headers:
        # A job's header replaces ours, in any case.
        for default in [default for default in headers if default.lower() == name.lower()]:
            del headers[default]
    headers |= {name: value for name, value in target.headers.items() if "{{" not in value}
    plain = not any("{{" in part for part in (target.url, *target.query.values()))
    url = filled_url(target.url, target.query, {}) if plain else None
    return ParsedWebhook(target, endpoint(target.url), host_name(target.url), url, headers, content_type)


def _content_type(target: WebhookTarget) -> str:
    return TEXT if "body" in target.model_fields_set and isinstance(target.body, str) else JSON


def build_request(attempt: WorkerAttempt, webhook: ParsedWebhook, secrets: Secrets, now: int) -> WebhookRequest:
    """Return the request of an attempt, signed at `now`. Raises UnsendableRequest if a value is missing."""
    target = webhook.target
    try:
        url = webhook.url or filled_url(target.url, target.query, attempt.event)
        body = None if webhook.content_type is None else _body(attempt, target)
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
    headers = {
        name: fill_secrets(value, secrets.header) for name, value in target.headers.items() if "{{" in value
    }
    for name, value in headers.items():
        if not sendable(value):
            raise SecretMissing(f"the secret for the header {name} contains line breaks or control characters")
    return headers


def _trace(attempt: WorkerAttempt) -> dict[str, str]:
    headers = {"traceparent": attempt.traceparent, "tracestate": attempt.tracestate}
    return {name: text for name, text in headers.items() if text and sendable(text)}
