"""`scheduler webhook test URL`: one signed example sent as a worker would send it, and what came back."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from scheduler.domain.instants import rfc3339
from scheduler.domain.messages import ResultStatus
from scheduler.domain.strict_json import split_member
from scheduler.domain.tenants import DEFAULT_TENANT
from scheduler.settings import Settings
from scheduler.workers.attempt import DEFAULT_MAX_DELAY, DEFAULT_TIMEOUT, WorkerAttempt
from scheduler.workers.webhook.http_call import CallResult, WebhookCaller
from scheduler.workers.webhook.request import UnsendableRequest, WebhookRequest, build_request, read_target
from scheduler.workers.webhook.secrets import Secrets

_SHOWN = ("webhook-id", "webhook-timestamp", "webhook-signature", "Content-Type", "User-Agent")


def example(target: dict[str, Any], tenant: str = DEFAULT_TENANT) -> WorkerAttempt:
    """Return an attempt like those of a tenant's job with this target."""
    now = datetime.now(UTC)
    event = {
        "event_id": str(uuid4()), "job_id": str(uuid4()), "job_type": "webhook.test", "payload": {"test": True},
        "due_at": rfc3339(now), "emitted_at": rfc3339(now), "occurrence": 1, "missed": 0, "next_run_at": None,
        "run": {"attempt": 1, "attempts_left": 0, "max_attempts": 1,
                "deadline": rfc3339(now + timedelta(hours=1))},
    }
    if tenant != DEFAULT_TENANT:
        event["tenant"] = tenant
    body = json.dumps(event | {"target": target}, separators=(",", ":")).encode()
    return WorkerAttempt(
        str(event["event_id"]), 1, str(event["job_id"]), "webhook.test", event, body, target, DEFAULT_TIMEOUT,
        DEFAULT_MAX_DELAY, DEFAULT_TIMEOUT, *split_member(body, "target")[1:], tenant=tenant,
    )


def run(
    settings: Settings, url: str, secret: str | None, say: Callable[[str], None], *,
    tenant: str = DEFAULT_TENANT, as_json: bool = False,
) -> bool:
    """Send one example, say what was sent and what came back, and return whether that counts as a success."""
    target = {"webhook": {"url": url} | ({} if secret is None else {"secret": secret})}
    try:
        webhook = read_target(json.dumps(target))
        attempt = example(target, tenant)
        request = build_request(attempt, webhook, Secrets(settings.webhook_secrets_file), int(time.time()))
    except UnsendableRequest as error:
        unsent = {"succeeded": False, "sent": None, "error": str(error)}
        say(json.dumps(unsent) if as_json else f"not sent: {error}")
        return False
    headers = {name: request.headers[name] for name in _SHOWN if name in request.headers}
    body = (request.body or b"").decode()
    if not as_json:
        shown = [f"{name}: {value}" for name, value in headers.items()]
        say("\n  ".join((f"{request.method} to {webhook.endpoint}", *shown, body)))
    called = asyncio.run(_call(settings, request, webhook.endpoint, webhook.host))
    outcome, succeeded = called.outcome, called.outcome.status is ResultStatus.SUCCEEDED
    if as_json:
        sent = {"method": request.method, "to": webhook.endpoint, "headers": headers, "body": body}
        say(json.dumps({"succeeded": succeeded, "sent": sent, "output": outcome.output, "error": outcome.error,
                        "retry": not succeeded and outcome.retry}))
    else:
        _tell(called, say)
    return succeeded


async def _call(settings: Settings, request: WebhookRequest, endpoint: str, host: str) -> CallResult:
    caller = WebhookCaller(settings)
    caller.open()
    try:
        return await caller.call(request, endpoint, host, DEFAULT_MAX_DELAY)
    finally:
        await caller.close()


def _tell(called: CallResult, say: Callable[[str], None]) -> None:
    outcome = called.outcome
    if outcome.output is not None:
        say(f"answered {outcome.output['status_code']} in {outcome.output['duration_ms']:.0f} ms")
        for name, value in outcome.output["headers"].items():
            say(f"  {name}: {value}")
        if outcome.output["body"]:
            say("  " + outcome.output["body"].replace("\n", "\n  "))
    if outcome.status is ResultStatus.SUCCEEDED:
        say("a job's attempt would have succeeded")
    else:
        again = "tried again by the job's policy" if outcome.retry else "given up"
        say(f"a job's attempt would have failed and be {again}: {outcome.error}")
