"""Requests as JSON or YAML text."""

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]

from scheduler.domain.errors import SchedulerError


class BadRequestText(SchedulerError):  # noqa: N818 - an expected outcome, not a failure
    """The text is not a request, or not JSON."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


class _YamlLoader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML 1.2: dates, times of day and words like `on` are strings."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the attribute of PyYAML


for _tag, _pattern, _first in (
    ("null", r"null|~|", ["n", "~", ""]), ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(?:0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", list("-0123456789")),
):
    _YamlLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first)


def read_text(text: str) -> dict[str, Any]:
    """Return the fields of a request in JSON or YAML. Raises BadRequestText."""
    try:
        fields = json.loads(text) if text.lstrip().startswith("{") else yaml.load(text, _YamlLoader)  # noqa: S506 - a safe loader
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadRequestText("body", f"is neither JSON nor YAML: {' '.join(str(error).split())}") from None
    if not isinstance(fields, dict):
        raise BadRequestText("body", "must be an object with the fields of a ScheduleRequest")
    return fields


def as_yaml(fields: Mapping[str, Any]) -> str:
    """Return the fields as YAML."""
    return str(yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, width=100))


def as_body(fields: Mapping[str, Any], payload: str | None = None) -> bytes:
    """Return a request's JSON; `payload` is the exact text of a payload that stays."""
    if payload is None:
        return json.dumps(fields).encode()
    others = json.dumps({name: value for name, value in fields.items() if name != "payload"})
    return f'{others[:-1]}, "payload": {payload}}}'.encode()
