"""Check a payload against the JSON Schema that the handlers of its type announce.

It knows the keywords that pydantic writes for types, members, numbers and lengths; others allow everything. The
number of steps is limited, because any worker may announce a schema.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

MAX_STEPS = 2_000
_MAX_DEPTH = 40
_MAX_PROBLEMS = 5
_Problem = tuple[str, str]  # field and problem
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "number": (int, float), "integer": (int, float),
    "boolean": (bool,), "null": (type(None),),
}
# By keyword: the values it is about, and whether a limit allows a value.
_LIMITS: Mapping[str, tuple[tuple[type, ...], Any, str]] = {
    "minimum": ((int, float), lambda value, limit: value >= limit, "must be at least {}"),
    "maximum": ((int, float), lambda value, limit: value <= limit, "must be at most {}"),
    "exclusiveMinimum": ((int, float), lambda value, limit: value > limit, "must be above {}"),
    "exclusiveMaximum": ((int, float), lambda value, limit: value < limit, "must be below {}"),
    "minLength": ((str,), lambda value, limit: len(value) >= limit, "must have at least {} characters"),
    "maxLength": ((str,), lambda value, limit: len(value) <= limit, "must have at most {} characters"),
    "minItems": ((list,), lambda value, limit: len(value) >= limit, "must have at least {} items"),
    "maxItems": ((list,), lambda value, limit: len(value) <= limit, "must have at most {} items"),
}


def payload_problems(schema: Mapping[str, Any] | None, payload: Any) -> dict[str, str]:
    """Return the problems by field; none without a schema."""
    problems: dict[str, str] = {}
    for field, problem in _Check(schema or {}).problems(payload, schema or {}, "payload", 0):
        problems.setdefault(field, problem)
        if len(problems) >= _MAX_PROBLEMS:
            break
    return problems


class _Check:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._definitions = root.get("$defs")
        self._steps = 0

    def problems(self, value: Any, schema: Any, field: str, depth: int) -> Iterator[_Problem]:
        self._steps += 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or self._steps > MAX_STEPS:
            return
        yield from self._referred(value, schema, field, depth + 1)
        if (wrong := _wrong_value(value, schema)) is not None:
            yield field, wrong
        elif isinstance(value, dict):
            yield from self._members(value, schema, field, depth + 1)
        elif isinstance(value, list):
            for number, item in enumerate(value[:MAX_STEPS]):
                yield from self.problems(item, schema.get("items"), f"{field}.{number}", depth + 1)

    def _referred(self, value: Any, schema: Mapping[str, Any], field: str, depth: int) -> Iterator[_Problem]:
        name = str(schema.get("$ref") or "").removeprefix("#/$defs/")
        if name and isinstance(self._definitions, Mapping):
            yield from self.problems(value, self._definitions.get(name), field, depth)
        for part in _list(schema.get("allOf")):
            yield from self.problems(value, part, field, depth)
        options = _list(schema.get("anyOf")) or _list(schema.get("oneOf"))
        tried = [list(self.problems(value, option, field, depth)) for option in options]
        if tried and all(tried):
            # The first option that is not null says most.
            pairs = zip(tried, options, strict=True)
            yield from next((problems for problems, option in pairs if option != {"type": "null"}), [])

    def _members(
        self, value: dict[str, Any], schema: Mapping[str, Any], field: str, depth: int
    ) -> Iterator[_Problem]:
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        others = schema.get("additionalProperties")
        for name in _list(schema.get("required")):
            if name not in value:
                yield f"{field}.{name}", "is required"
        for name, member in islice(value.items(), MAX_STEPS):
            if name in known:
                yield from self.problems(member, known[name], f"{field}.{name}", depth)
            elif others is False:
                yield f"{field}.{name}", "is unknown"
            else:
                yield from self.problems(member, others, f"{field}.{name}", depth)


def _wrong_value(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return why the value itself does not match, without its members."""
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else _list(schema.get("type"))
    if kinds and not any(_is(value, str(kind)) for kind in kinds):
        return f"must be {' or '.join(map(str, kinds))}"
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"must be one of {', '.join(map(str, choices[:10]))}"
    for keyword, (types, allows, text) in _LIMITS.items():
        limit, fits = schema.get(keyword), isinstance(value, types) and not isinstance(value, bool)
        if fits and _is_number(limit) and not allows(value, limit):
            return text.format(limit)
    return None


def _is(value: Any, kind: str) -> bool:
    """Return whether a value has a type of JSON Schema; unknown types allow everything."""
    types = _TYPES.get(kind)
    if types is None:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    whole = not isinstance(value, float) or value.is_integer()
    return isinstance(value, types) and (kind != "integer" or whole)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
