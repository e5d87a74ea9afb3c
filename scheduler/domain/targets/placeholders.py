"""`{{payload.invoice}}` and the like in what a worker sends or runs: filled in as text, once."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
_OF_THE_EVENT = frozenset({"job_id", "job_type", "due_at", "event_id"})
_KNOWN = re.compile(r"job_id|job_type|due_at|event_id|attempt|payload(?:\.[^.]+)+")
_DEEPEST = 198  # with the two levels around it all that pydantic reads of a target again
SECRET = "secret."  # noqa: S105 - the beginning of a placeholder's name


class UnknownPlaceholder(Exception):  # noqa: N818 - a verdict about the job, not an accident
    """The event has nothing for a placeholder; the text names it."""


def placeholders(text: str) -> list[str]:
    """Return the names between the braces, in order."""
    return _PLACEHOLDER.findall(text) if "{{" in text else []


def check(value: Any, depth: int = 0) -> None:
    """Raise ValueError over a placeholder, in the strings of a JSON value, that no event has anything for.

    And over a value that is nested too deeply to be handed on.
    """
    if isinstance(value, str):
        for name in placeholders(value):
            if not _KNOWN.fullmatch(name):
                raise ValueError(f"{{{{{name[:80]}}}}} is not a placeholder; there are job_id, job_type, due_at, "
                                 "event_id, attempt and payload.a.b" + _hint(name))
    elif isinstance(value, list | tuple | dict):
        if depth == _DEEPEST:
            raise ValueError(f"must not be nested deeper than {_DEEPEST} levels")
        for each in value.values() if isinstance(value, dict) else value:
            check(each, depth + 1)


def _hint(name: str) -> str:
    return "; secrets go into headers only" if name.startswith(SECRET) else ""


def fill_secrets(text: str, secret: Callable[[str], str]) -> str:
    """Return the text with {{secret.NAME}} filled in; nothing else is."""
    if "{{" not in text:
        return text
    return _PLACEHOLDER.sub(
        lambda match: secret(match[1].removeprefix(SECRET)) if match[1].startswith(SECRET) else match[0], text
    )


def fill(text: str, event: Mapping[str, Any], escape: Callable[[str], str] = str) -> str:
    """Return the text with what the event has for each placeholder, which is not looked into again."""
    if "{{" not in text:
        return text
    return _PLACEHOLDER.sub(lambda match: escape(_as_text(_found(match[1], event))), text)


def fill_all(value: Any, event: Mapping[str, Any]) -> Any:
    """Return a JSON value with the placeholders in its strings filled in; keys stay as they are."""
    if isinstance(value, str):
        return fill(value, event)
    if isinstance(value, list):
        return [fill_all(each, event) for each in value]
    if isinstance(value, dict):
        return {key: fill_all(each, event) for key, each in value.items()}
    return value


def _found(name: str, event: Mapping[str, Any]) -> Any:
    if name in _OF_THE_EVENT:
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
    return UnknownPlaceholder(f"the event has nothing for the placeholder {{{{{name[:200]}}}}}")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
