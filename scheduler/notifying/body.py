"""The request to SCHEDULER_NOTIFY_WEBHOOK."""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid5

from scheduler.domain.instants import rfc3339
from scheduler.domain.tenants import DEFAULT_TENANT
from scheduler.postgres.notifications import Notification
from scheduler.workers.webhook.request import JSON, USER_AGENT, WebhookRequest
from scheduler.workers.webhook.secrets_file import signing_key

TIMEOUT_SECONDS = 10.0
_ID_SPACE = UUID("3e1f5c0a-4d65-4f0e-9a53-9a2f6f3f0b44")

# By kind: the sentence when a problem begins, and when it is resolved.
_SENTENCES = {
    "behind": ("Reminders are due and not emitted", "All due reminders are emitted again"),
    "runs_overdue": ("Runs are overdue: no producer processes them", "No run is overdue any more"),
    "worker_lost": ("The worker {} sends no liveness messages", "The worker {} is back"),
    "calendar_expiring": ("The calendar {} ends within 30 days", "The calendar {} is extended or out of use"),
}


def build_request(
    url: str, secret: str, notifications: Sequence[Notification], more: int, now: datetime
) -> WebhookRequest:
    """Return the signed request; the same notifications have the same `webhook-id`."""
    message_id = str(uuid5(_ID_SPACE, " ".join(map(_id, notifications))))
    body = json.dumps({
        "id": message_id, "sent_at": rfc3339(now), "notifications": list(map(_item, notifications)),
        "more": more,
    }, ensure_ascii=False).encode("utf-8", "replace")
    timestamp = str(int(now.timestamp()))
    return WebhookRequest("POST", url, {
        "User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity", "Content-Type": JSON,
        "webhook-id": message_id, "webhook-timestamp": timestamp,
        "webhook-signature": _signature(secret, f"{message_id}.{timestamp}.".encode() + body),
    }, body, TIMEOUT_SECONDS)


def _signature(secret: str, signed: bytes) -> str:
    key = signing_key(secret) or b""
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _id(notification: Notification) -> str:
    """Return an id that is the same each time that this is sent."""
    return str(uuid5(_ID_SPACE, f"{notification.key} {notification.firing} {rfc3339(notification.since)}"))


def _item(notification: Notification) -> dict[str, object]:
    item: dict[str, object] = {
        "id": _id(notification), "kind": notification.kind,
        "state": "firing" if notification.firing else "resolved",
        "since": rfc3339(notification.since.astimezone(UTC)), "summary": summary(notification),
    }
    if notification.kind == "run_dead":
        item |= {"job_id": notification.subject, "job_type": notification.job_type,
                 "event_id": notification.event_id, "error": notification.error}
    elif notification.kind == "runs_dead":
        item["count"] = int(notification.subject)
    elif notification.subject:
        item["name"] = notification.subject
    if notification.tenant is not None:
        item["tenant"] = notification.tenant
    return item


def summary(notification: Notification) -> str:
    """Return one sentence for the operator."""
    subject = notification.subject
    if notification.kind == "run_dead":
        job = notification.name or notification.job_type or subject
        firing = f"A run of the job {job} is dead: {notification.error or 'no error was reported'}"
        resolved = f"The job {job} has succeeded again"
    elif notification.kind == "runs_dead":
        tenant = notification.tenant or DEFAULT_TENANT
        firing = f"{int(subject):,} more jobs of the tenant {tenant} have dead runs, not reported one by one"
        resolved = f"The dead runs of the tenant {tenant} are reported one by one again"
    else:
        firing, resolved = (text.format(subject) for text in _SENTENCES[notification.kind])
    return firing if notification.firing else resolved
