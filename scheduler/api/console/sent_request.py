"""The HTTP request that a run's webhook sends, with credentials masked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.domain.targets.placeholders import UnknownPlaceholder, fill_all
from scheduler.domain.targets.target import mask_target
from scheduler.domain.targets.urls import filled_url


@dataclass(frozen=True, slots=True)
class SentRequest:
    """Method, URL, headers and body."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: Any  # None: none


def sent_request(event: Any) -> SentRequest | None:
    """Return the request of an event's webhook; None if the event has none. Secrets stay placeholders."""
    target = event.get("target") if isinstance(event, dict) else None
    webhook = mask_target(target).get("webhook") if isinstance(target, dict) else None
    if not isinstance(webhook, dict):
        return None
    method = str(webhook.get("method") or "POST")
    rest = {name: value for name, value in event.items() if name != "target"}
    body = webhook.get("body", rest)
    given = {str(name): str(value) for name, value in (webhook.get("headers") or {}).items()}
    headers = {"webhook-id": str(event.get("event_id") or "")} | given
    if webhook.get("secret"):
        headers["webhook-signature"] = f"signed with the secret {webhook['secret']}"
    try:
        url = filled_url(str(webhook.get("url")), webhook.get("query") or {}, event)
        body = fill_all(body, event) if "body" in webhook else body
    except (UnknownPlaceholder, ValueError, KeyError, TypeError):
        url = str(webhook.get("url"))  # the attempt's error names the placeholder
    return SentRequest(method, url, headers, None if method == "GET" else body)
