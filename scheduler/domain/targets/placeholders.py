"""Substitute placeholders such as `{{payload.invoice}}` in targets, as text and once."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
_EVENT_FIELDS = frozenset({"job_id", "job_type", "due_at", "event_id"})
_PLACEHOLDER_NAME = re.compile(r"job_id|job_type|due_at|event_id|attempt|payload(?:\.[^.]+)+")
_DEEPEST = 198  # plus the two levels around it: pydantic's limit for reading a target back
SECRET = "secret."  # noqa: S105 - the beginning of a placeholder's name


class UnknownPlaceholder(Exception):  # noqa: N818 - describes the job
    """The event has no value for a placeholder."""


def placeholders(text: str) -> list[str]:
    """Return the names between the braces, in order."""
    return _PLACEHOLDER.findall(text) if "{{" in text else []


def check_placeholders(value: Any, depth: int = 0) -> None:
    """Raise ValueError for an unknown placeholder in the strings of a JSON value, or for too deep nesting."""
    if isinstance(value, str):
        for name in placeholders(value):
            if not _PLACEHOLDER_NAME.fullmatch(name):
                raise ValueError(f"{{{{{name[:80]}}}}} is not a placeholder; use job_id, job_type, due_at, "
                                 "event_id, attempt or payload.a.b" + _hint(name))
    elif isinstance(value, list | tuple | dict):
        if depth == _DEEPEST:
            raise ValueError(f"must not be nested deeper than {_DEEPEST} levels")
        for item in value.values() if isinstance(value, dict) else value:
            check_placeholders(item, depth + 1)


def _hint(name: str) -> str:
    return "; secrets are allowed in headers only" if name.startswith(SECRET) else ""


def fill_secrets(text: str, secret: Callable[[str], str]) -> str:
    """Return the text with {{secret.NAME}} substituted, and no other placeholder."""
    if "{{" not in text:
        return text
    return _PLACEHOLDER.sub(
        lambda match: secret(match[1].removeprefix(SECRET)) if match[1].startswith(SECRET) else match[0], text
    )


def fill(text: str, event: Mapping[str, Any], escape: Callable[[str], str] = str) -> str:
    """Return the text with placeholders substituted once from the event."""
    if "{{" not in text:
        return text
    return _PLACEHOLDER.sub(lambda match: escape(_as_text(_value(match[1], event))), text)


def fill_all(value: Any, event: Mapping[str, Any]) -> Any:
    """Return a JSON value with the placeholders in its strings substituted; keys are unchanged."""
    if isinstance(value, str):
        return fill(value, event)
    if isinstance(value, list):
        return [fill_all(item, event) for item in value]
    if isinstance(value, dict):
        return {key: fill_all(item, event) for key, item in value.items()}
    return value


def _value(name: str, event: Mapping[str, Any]) -> Any:
    if name in _EVENT_FIELDS:
        return event[name]
    if name == "attempt":
        return event["run"]["attempt"]
    first, *path = name.split(".")
    value = event.get("payload")
    if first != "payload" or not path:
        raise _unknown(name)
    for step in path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise _unknown(name)
    return value


def _unknown(name: str) -> UnknownPlaceholder:
    return UnknownPlaceholder(f"the event has no value for the placeholder {{{{{name[:200]}}}}}")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
