"""Messages drawn from the JSON Schemas in schemas/: valid by their schema, or with some of it broken."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

SCHEMAS = Path(__file__).parents[1] / "schemas"
_DEEPEST = 3
_FORMATS = {
    "uuid": st.uuids().map(str),
    "date-time": st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"),
}
_TEXTS = st.one_of(
    st.text(max_size=20), st.text("{}.payload secret_", max_size=40),
    st.sampled_from([
        "\x00", "\ud800", "é" * 100, "{{payload.a}}", "{{secret.a}}", "{{", "now", "http://127.0.0.1/{{job_id}}",
        "FREQ=DAILY", "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=DAILY;COUNT=3\nEXDATE:20270101T000000Z",
        "FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO", "0 0 30 2 *", "*/5 * * * *", "@daily", "PT15M", "P1Y", "Europe/Berlin",
        "Europe/Nowhere", "2026-12-01T08:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59",
        "2026-02-30T00:00:00Z", "a.b", "A" * 300, "1" * 5000,
    ]),
)
_NUMBERS = st.one_of(st.integers(-2, 2), st.integers(), st.floats(), st.sampled_from([2**63, -(2**63) - 1, 1e308]))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4), max_leaves=8,
)


def schema(name: str) -> dict[str, Any]:
    """Return the schema of a message by its name."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def valid(name: str) -> st.SearchStrategy[Any]:
    """Draw messages that their schema allows; parts that it does not describe, such as rules, may be invalid."""
    whole = schema(name)
    return _drawn(whole, whole.get("$defs", {}), 0)


def broken(name: str) -> st.SearchStrategy[Any]:
    """Draw messages some of whose values are anything, left out, or there too many."""
    return st.tuples(valid(name), st.lists(st.tuples(st.integers(0, 1000), ANYTHING), max_size=3),
                     st.dictionaries(_TEXTS, ANYTHING, max_size=2)).map(lambda drawn: _spoilt(*drawn))


def _spoilt(message: Any, changes: list[tuple[int, Any]], more: dict[str, Any]) -> Any:
    for at, value in changes:
        places = list(_places(message))
        if not places:
            return value
        where, key = places[at % len(places)]
        if at % 3 == 0 and isinstance(where, dict):
            del where[key]
        else:
            where[key] = value
    return message | more if isinstance(message, dict) and more else message


def _places(value: Any) -> Any:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _drawn(part: dict[str, Any], named: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "$ref" in part:
        return _drawn(named[part["$ref"].rsplit("/", 1)[-1]], named, depth)
    for choice in ("anyOf", "oneOf"):
        if choice in part:
            return st.one_of([_drawn(each, named, depth) for each in part[choice]])
    if "const" in part or "enum" in part:
        return st.sampled_from(part.get("enum") or [part["const"]])
    match part.get("type"):
        case "object":
            return _object(part, named, depth)
        case "array":
            inner = _drawn(part.get("items") or {}, named, depth + 1)
            most = min(part.get("maxItems", 4), 4)
            return st.lists(inner, min_size=min(part.get("minItems", 0), most), max_size=most)
        case "string":
            return _text(part)
        case "integer":
            return st.integers(part.get("minimum"), part.get("maximum"))
        case "number":
            return st.floats(part.get("minimum"), part.get("maximum"), allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    return ANYTHING


def _object(part: dict[str, Any], named: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    response = part.get("properties", {})
    if not response or depth > _DEEPEST:
        values = part.get("additionalProperties")
        inner = _drawn(values, named, depth + 1) if isinstance(values, dict) else ANYTHING
        return st.dictionaries(_TEXTS, inner, max_size=4)
    needed = set(part.get("required", []))
    drawn = {name: _drawn(each, named, depth + 1) for name, each in response.items()}
    return st.fixed_dictionaries({name: each for name, each in drawn.items() if name in needed},
                                 optional={name: each for name, each in drawn.items() if name not in needed})


def _text(part: dict[str, Any]) -> st.SearchStrategy[Any]:
    if part.get("format") in _FORMATS:
        return _FORMATS[part["format"]]
    if "pattern" in part:
        return st.from_regex(part["pattern"], fullmatch=True)
    low, high = part.get("minLength", 0), part.get("maxLength", 10_000)
    return _TEXTS.filter(lambda text: low <= len(text) <= high)
