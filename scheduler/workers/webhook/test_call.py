"""Send one example for `scheduler webhook test URL`, as a worker would."""

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
from scheduler.workers.outcome import WorkOutcome
from scheduler.workers.webhook.http_call import CallResult, WebhookCaller
from scheduler.workers.webhook.request import UnsendableRequest, WebhookRequest, build_request, read_target
from scheduler.workers.webhook.secrets import Secrets

_PRINTED = ("webhook-id", "webhook-timestamp", "webhook-signature", "Content-Type", "User-Agent")


def example(target: dict[str, Any], tenant: str = DEFAULT_TENANT) -> WorkerAttempt:
    """Return an example attempt of a tenant's job with this target."""
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
    """Send one example, print the request and the response, and return whether the call succeeded."""
    target = {"webhook": {"url": url} | ({} if secret is None else {"secret": secret})}
    try:
        webhook = read_target(json.dumps(target))
        attempt = example(target, tenant)
        request = build_request(attempt, webhook, Secrets(settings.webhook_secrets_file), int(time.time()))
    except UnsendableRequest as error:
        unsent = {"succeeded": False, "sent": None, "error": str(error)}
        say(json.dumps(unsent) if as_json else f"not sent: {error}")
        return False
    headers = {name: request.headers[name] for name in _PRINTED if name in request.headers}
    body = (request.body or b"").decode()
    if not as_json:
        lines = [f"{name}: {value}" for name, value in headers.items()]
        say("\n  ".join((f"{request.method} to {webhook.endpoint}", *lines, body)))
    outcome = asyncio.run(_call(settings, request, webhook.endpoint, webhook.host)).outcome
    succeeded = outcome.status is ResultStatus.SUCCEEDED
    if as_json:
        sent = {"method": request.method, "to": webhook.endpoint, "headers": headers, "body": body}
        say(json.dumps({"succeeded": succeeded, "sent": sent, "output": outcome.output, "error": outcome.error,
                        "retry": not succeeded and outcome.retry}))
    else:
        _print_outcome(outcome, say)
    return succeeded


async def _call(settings: Settings, request: WebhookRequest, endpoint: str, host: str) -> CallResult:
    caller = WebhookCaller(settings)
    caller.open()
    try:
        return await caller.call(request, endpoint, host, DEFAULT_MAX_DELAY)
    finally:
        await caller.close()


def _print_outcome(outcome: WorkOutcome, say: Callable[[str], None]) -> None:
    if outcome.output is not None:
        say(f"response {outcome.output['status_code']} in {outcome.output['duration_ms']:.0f} ms")
        for name, value in outcome.output["headers"].items():
            say(f"  {name}: {value}")
        if outcome.output["body"]:
            say("  " + outcome.output["body"].replace("\n", "\n  "))
    if outcome.status is ResultStatus.SUCCEEDED:
        say("an attempt would have succeeded")
    else:
        retry = "retried according to the job's policy" if outcome.retry else "not retried"
        say(f"an attempt would have failed, {retry}: {outcome.error}")
