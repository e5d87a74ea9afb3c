"""Webhooks in the console."""

import json
import re
from collections.abc import Mapping
from typing import Any

from scheduler.api.console.form_fields import ParsedForm, pretty, put, read_number
from scheduler.api.console.targets.target_form import TargetForm


def _read(form: Mapping[str, str], read: ParsedForm, stored: Mapping[str, Any]) -> dict[str, Any]:
    hook = ParsedForm()
    put(hook, "url", form.get("url"))
    if form.get("method") and (form["method"] != "POST" or "method" in stored):
        hook.fields["method"] = form["method"]
    headers = _headers(form.get("headers") or "", read)
    if headers:
        hook.fields["headers"] = headers
    put(hook, "secret", form.get("secret"))
    put(hook, "timeout", read_number(form, read, "hook_timeout", about="target.webhook.timeout"))
    body = form.get("body") or ""
    if body.strip():
        try:
            hook.fields["body"] = json.loads(body)
        except (ValueError, RecursionError):
            hook.fields["body"] = body  # a string is sent unchanged
    return hook.fields


def _headers(text: str, read: ParsedForm) -> dict[str, str]:
    headers = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if line.strip() and not colon:
            problem = f"a header must have the format Name: value, not {line[:40]!r}"
            read.problems["target.webhook.headers"] = problem
        elif line.strip():
            headers[name.strip()] = value.strip()
    return headers


def _values(hook: Mapping[str, Any]) -> dict[str, str]:
    headers = "\n".join(f"{name}: {value}" for name, value in (hook.get("headers") or {}).items())
    body = hook.get("body")
    values = {"url": hook.get("url"), "method": hook.get("method"), "secret": hook.get("secret"),
              "hook_timeout": hook.get("timeout"), "headers": headers,
              "body": None if body is None else body if _is_plain(body) else pretty(body)}
    return {name: str(value) for name, value in values.items() if value not in (None, "")}


def _is_plain(body: Any) -> bool:
    """Return whether the form can show a string without quotes and parse it back unchanged."""
    if not isinstance(body, str):
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return not re.search(r"\r|^\s*$", body)
    return False


def _summary(hook: Mapping[str, Any]) -> tuple[str, str]:
    return "calls", f"{hook.get('method', 'POST')} {hook.get('url')}"


FORM = TargetForm(
    "call a webhook", ("url", "method", "headers", "secret", "hook_timeout", "body"),
    frozenset({"url", "method", "headers", "secret", "timeout", "body"}), _read, _values, _summary,
)
