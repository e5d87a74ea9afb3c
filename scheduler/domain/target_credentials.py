"""Mask literal credentials in a webhook's headers, query and URL; restore them on edit.

Secrets belong in the workers' file, as {{secret.NAME}}. A literal credential in a job is stored and sent as is,
but readers and audit entries see only a mask.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.messages.targets import Target, WebhookTarget

MASK = "***"
_SENSITIVE = frozenset({
    "auth", "authentication", "authorization", "cookie", "cookies", "credential", "credentials", "jwt", "passwd",
    "password", "pwd", "secret", "session", "sessionid", "sid", "sig", "signature", "token", "apikey", "accesskey",
})
_ENDINGS = ("token", "secret", "password", "apikey", "signature")
_OTHER_KEYS = frozenset({"idempotency", "cache", "partition", "public", "routing", "sort", "surrogate"})
# Not masked: only placeholders, after an optional Authorization scheme.
_NO_LITERAL = re.compile(r"(?:(?:bearer|basic|token|apikey|key|digest)\s+)?(?:\{\{[^{}]*\}\}\s*)*", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<=[?&])([^=&#]*)=([^&#]*)")


def is_sensitive(name: str) -> bool:
    """Return whether a header or parameter with this name usually contains a credential."""
    camel_case = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+", name)
    parts = {part.lower() for part in camel_case} | set(re.split(r"[^a-z0-9]+", name.lower()))
    if parts & _SENSITIVE or any(part.endswith(_ENDINGS) for part in parts):
        return True
    return "key" in parts and not parts & _OTHER_KEYS


def mask_target(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return a target, as JSON, with its literal credentials masked."""
    hook = target.get("webhook")
    if not isinstance(hook, dict):
        return dict(target)
    masked = dict(hook)
    for field in ("headers", "query"):
        values = hook.get(field)
        if isinstance(values, dict):
            masked[field] = {name: _masked(name, value) for name, value in values.items()}
    if isinstance(hook.get("url"), str):
        masked["url"] = _PARAMETER.sub(lambda match: f"{match[1]}={_masked(match[1], match[2])}", hook["url"])
    return dict(target) | {"webhook": masked}


def mask_target_text(target: str) -> str:
    """Return a target, as JSON text, with its literal credentials masked."""
    if "webhook" not in target:
        return target
    try:
        parsed = json.loads(target)
        masked = mask_target(parsed) if isinstance(parsed, dict) else parsed
        return target if masked == parsed else json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return json.dumps(MASK)


def _masked(name: str, value: Any) -> Any:
    literal = isinstance(value, str) and not _NO_LITERAL.fullmatch(value)
    return MASK if literal and is_sensitive(name) else value


def has_masks(target: Target | None) -> bool:
    """Return whether a target contains a masked credential."""
    hook = None if target is None else target.webhook
    return hook is not None and any(value == MASK and is_sensitive(name) for name, value in _values(hook))


def restore_credentials(target: Target, stored: str | None) -> Target:
    """Return a target with masks replaced by the credentials of the stored target, given as JSON text.

    Raises Rejected for a mask without a stored credential. The scheme, host and port must be the same, or an
    editor could send the credential to another host.
    """
    hook = target.webhook
    assert hook is not None  # noqa: S101 - only webhooks have masks
    before = Target.model_validate_json(stored).webhook if stored is not None else None
    if before is not None and _origin(before.url) != _origin(hook.url):
        before = None
    changed: dict[str, Any] = {}
    for field in ("headers", "query"):
        values = _filled(getattr(hook, field), {} if before is None else getattr(before, field), field)
        if values != getattr(hook, field):
            changed[field] = values
    url = _filled_url(hook.url, "" if before is None else before.url)
    if url != hook.url:
        changed["url"] = url
    return target.model_copy(update={"webhook": hook.model_copy(update=changed)})


def _values(hook: WebhookTarget) -> Iterable[tuple[str, str]]:
    yield from hook.headers.items()
    yield from hook.query.items()
    yield from _PARAMETER.findall(hook.url)


def _filled(values: Mapping[str, str], before: Mapping[str, str], field: str) -> dict[str, str]:
    stored = {name.lower(): value for name, value in before.items()}
    return {
        name: stored.get(name.lower()) or _missing(field, name) if value == MASK and is_sensitive(name) else value
        for name, value in values.items()
    }


def _filled_url(url: str, before: str) -> str:
    stored: dict[str, list[str]] = {}
    for name, value in _PARAMETER.findall(before):
        stored.setdefault(name, []).append(value)

    def fill(match: "re.Match[str]") -> str:
        name, value = match[1], match[2]
        credential = stored[name].pop(0) if stored.get(name) else None
        if value != MASK or not is_sensitive(name):
            return match[0]
        return f"{name}={credential or _missing('url', name)}"

    return _PARAMETER.sub(fill, url)


def _missing(field: str, name: str) -> str:
    problem = f"{name[:80]} is {MASK}, which replaces a hidden value; give the value itself"
    raise Rejected([Problem(f"target.webhook.{field}", problem)])


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default
