"""Writes schemas/messages.d.ts, the TypeScript types of the messages, from the JSON Schemas: `make schemas`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scheduler.resources import folder
from tools.schemas import schemas

FILE = "messages.d.ts"
_HEAD = """\
// The messages of the contract. Written by `make schemas` from the models; do not edit.
// An optional field may be left out, or null. docs/messages.md describes the messages.
"""
_NAMES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
Schema = Mapping[str, Any]


def types() -> str:
    """Return the text of the file."""
    declared: dict[str, str] = {}
    for text in schemas().values():
        message: Schema = json.loads(text)
        for name, schema in {**message.get("$defs", {}), message["title"]: message}.items():
            declaration = _declaration(name, schema)
            if declared.setdefault(name, declaration) != declaration:
                raise ValueError(f"two types are called {name}")
    return "\n".join([_HEAD, *(declared[name] for name in sorted(declared))])


def _declaration(name: str, schema: Schema) -> str:
    if "properties" not in schema:
        return f"{_comment(schema, '')}export type {name} = {_type(schema)};\n"
    return f"{_comment(schema, '')}export interface {name} {{\n{''.join(_fields(schema))}}}\n"


def _fields(schema: Schema) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        yield f"{_comment(field, '  ')}  {name}{'' if name in required else '?'}: {_type(field)};\n"


def _comment(schema: Schema, indent: str) -> str:
    text = " ".join(schema.get("description", "").split())
    return f"{indent}/** {text} */\n" if text else ""


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " | ".join(dict.fromkeys(_type(option) for option in schema[choice]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        item = _type(schema.get("items", {}))
        return f"({item})[]" if " | " in item else f"{item}[]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'unknown'}>"
    return "unknown" if kind is None else _NAMES[kind]


def write(where: Path) -> None:
    """Write the types into a folder."""
    (where / FILE).write_text(types(), encoding="utf-8")


if __name__ == "__main__":
    write(folder("schemas"))
