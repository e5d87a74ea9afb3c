"""Inputs for the payload of a job type, from the JSON Schema that its handlers announce."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_INPUTS = 40
_KINDS = {"string": "text", "integer": "number", "number": "number", "boolean": "checkbox"}


@dataclass(frozen=True, slots=True)
class PayloadInput:
    """One input; its value becomes a member of the payload."""

    name: str
    label: str
    kind: str  # of the HTML input; json for a value of another type
    required: bool
    hint: str
    choices: tuple[str, ...] = ()
    step: str = "any"


def payload_inputs(schema: Mapping[str, Any] | None) -> list[PayloadInput]:
    """Return an input for each property of an object; nothing for another schema."""
    properties = (schema or {}).get("properties")
    if not isinstance(properties, Mapping):
        return []
    given = (schema or {}).get("required")
    required = set(given) if isinstance(given, list) else set()
    return [_input(str(name), _plain(part, schema or {}), required=name in required)
            for name, part in list(properties.items())[:MAX_INPUTS] if isinstance(part, Mapping)]


def _plain(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a property without `anyOf` with null and without a reference to a definition."""
    alternatives = [option for option in part.get("anyOf") or () if isinstance(option, Mapping)]
    options = [option for option in alternatives if option.get("type") != "null"]
    merged = {**part, **options[0]} if len(options) == 1 else dict(part)
    target = str(merged.get("$ref") or "").removeprefix("#/$defs/")
    definition = (schema.get("$defs") or {}).get(target)
    return {**definition, **merged} if isinstance(definition, Mapping) else merged


def _input(name: str, part: Mapping[str, Any], *, required: bool) -> PayloadInput:
    kind = _KINDS.get(str(part.get("type")), "json")
    values = part.get("enum")
    choices = tuple(map(str, values)) if isinstance(values, list) and kind in ("text", "json") and all(
        isinstance(value, str) for value in values) else ()
    hint = str(part.get("description") or "")[:200]
    if part.get("default") is not None:
        hint = f"{hint} Default: {part['default']}.".strip()
    return PayloadInput(name, str(part.get("title") or name)[:100], "choice" if choices else kind, required, hint,
                        choices, "1" if part.get("type") == "integer" else "any")
