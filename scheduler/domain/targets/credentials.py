"""Literal credentials in a webhook's headers and query: masked wherever a target is shown, and kept by an edit.

Secrets belong into the workers' file, as {{secret.NAME}}. Those that a job contains all the same are stored and
sent as they are, but no reader and no audit entry gets them.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.messages.targets import Target, WebhookTarget

MASK = "***"
_WORDS = frozenset({
    "auth", "authentication", "authorization", "cookie", "cookies", "credential", "credentials", "jwt", "passwd",
    "password", "pwd", "secret", "session", "sessionid", "sid", "sig", "signature", "token", "apikey", "accesskey",
})
_ENDINGS = ("token", "secret", "password", "apikey", "signature")
_OTHER_KEYS = frozenset({"idempotency", "cache", "partition", "public", "routing", "sort", "surrogate"})
# Shown as it is: nothing but placeholders, with the scheme of an Authorization before them.
_NO_LITERAL = re.compile(r"(?:(?:bearer|basic|token|apikey|key|digest)\s+)?(?:\{\{[^{}]*\}\}\s*)*", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<=[?&])([^=&#]*)=([^&#]*)")


def is_sensitive(name: str) -> bool:
    """Tell whether a header or a parameter of this name usually holds a credential."""
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+", name)
    parts = {each.lower() for each in words} | set(re.split(r"[^a-z0-9]+", name.lower()))
    if parts & _WORDS or any(each.endswith(_ENDINGS) for each in parts):
        return True
    return "key" in parts and not parts & _OTHER_KEYS


def mask_target(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return a target, as JSON, with its literal credentials masked."""
    hook = target.get("webhook")
    if not isinstance(hook, dict):
        return dict(target)
    shown = dict(hook)
    for field in ("headers", "query"):
        values = hook.get(field)
        if isinstance(values, dict):
            shown[field] = {name: _masked(name, value) for name, value in values.items()}
    if isinstance(hook.get("url"), str):
        shown["url"] = _PARAMETER.sub(lambda found: f"{found[1]}={_masked(found[1], found[2])}", hook["url"])
    return dict(target) | {"webhook": shown}


def mask_target_text(target: str) -> str:
    """Return a target, as JSON text, with its literal credentials masked."""
    if "webhook" not in target:
        return target
    try:
        found = json.loads(target)
        shown = mask_target(found) if isinstance(found, dict) else found
        return target if shown == found else json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return json.dumps(MASK)


def _masked(name: str, value: Any) -> Any:
    literal = isinstance(value, str) and not _NO_LITERAL.fullmatch(value)
    return MASK if literal and is_sensitive(name) else value


def has_masks(target: Target | None) -> bool:
    """Tell whether a target has a credential that was masked when it was read."""
    hook = None if target is None else target.webhook
    return hook is not None and any(value == MASK and is_sensitive(name) for name, value in _values(hook))


def restore_credentials(target: Target, stored: str | None) -> Target:
    """Return a target with the credentials that the stored one, as JSON text, has in place of masks.

    Raises Rejected for a mask without one. A credential is kept only for the same scheme, host and port: otherwise
    whoever may edit a job could have it sent elsewhere.
    """
    hook = target.webhook
    assert hook is not None  # noqa: S101 - only webhooks have masks
    before = Target.model_validate_json(stored).webhook if stored is not None else None
    if before is not None and _origin(before.url) != _origin(hook.url):
        before = None
    changed: dict[str, Any] = {}
    for field in ("headers", "query"):
        found = _filled(getattr(hook, field), {} if before is None else getattr(before, field), field)
        if found != getattr(hook, field):
            changed[field] = found
    url = _filled_url(hook.url, "" if before is None else before.url)
    if url != hook.url:
        changed["url"] = url
    return target.model_copy(update={"webhook": hook.model_copy(update=changed)})


def _values(hook: WebhookTarget) -> Iterable[tuple[str, str]]:
    yield from hook.headers.items()
    yield from hook.query.items()
    yield from _PARAMETER.findall(hook.url)


def _filled(values: Mapping[str, str], before: Mapping[str, str], field: str) -> dict[str, str]:
    kept = {name.lower(): value for name, value in before.items()}
    return {
        name: kept.get(name.lower()) or _missing(field, name) if value == MASK and is_sensitive(name) else value
        for name, value in values.items()
    }


def _filled_url(url: str, before: str) -> str:
    kept: dict[str, list[str]] = {}
    for name, value in _PARAMETER.findall(before):
        kept.setdefault(name, []).append(value)

    def fill(found: "re.Match[str]") -> str:
        name, value = found[1], found[2]
        stored = kept[name].pop(0) if kept.get(name) else None
        if value != MASK or not is_sensitive(name):
            return found[0]
        return f"{name}={stored or _missing('url', name)}"

    return _PARAMETER.sub(fill, url)


def _missing(field: str, name: str) -> str:
    problem = f"{name[:80]} is {MASK}, which stands for a value that is not shown: give the value itself"
    raise Rejected([Problem(f"target.webhook.{field}", problem)])


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default
