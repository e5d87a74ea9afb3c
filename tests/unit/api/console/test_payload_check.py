"""The job form checks payloads against the JSON Schema of their type, as a complete validator does."""

from datetime import date
from enum import Enum
from typing import Literal

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field

from scheduler.api.console.payload_check import payload_problems


class Channel(Enum):
    MAIL = "mail"
    POST = "post"


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=5)
    price: float = Field(gt=0, le=100)


class Invoice(BaseModel):
    number: int
    channel: Channel = Channel.MAIL
    note: str | None = None
    lines: list[Line] = Field(default=[], max_length=2)
    day: date | None = None
    tags: dict[str, int] = {}
    parent: "Invoice | None" = None
    kind: Literal["a", "b"] = "a"


SCHEMA = Invoice.model_json_schema()


@pytest.mark.parametrize(("payload", "problems"), [
    ({"number": 1}, {}),
    ({"number": 1.0, "note": None, "channel": "post", "kind": "b", "tags": {"x": 1}, "more": 1}, {}),
    ({}, {"payload.number": "is required"}),
    ({"number": "1"}, {"payload.number": "must be integer"}),
    ({"number": True}, {"payload.number": "must be integer"}),
    ({"number": 1.5}, {"payload.number": "must be integer"}),
    ({"number": 1, "channel": "fax"}, {"payload.channel": "must be one of mail, post"}),
    ({"number": 1, "note": 5}, {"payload.note": "must be string"}),
    ({"number": 1, "kind": "c"}, {"payload.kind": "must be one of a, b"}),
    ({"number": 1, "tags": {"x": "y"}}, {"payload.tags.x": "must be integer"}),
    ({"number": 1, "lines": [{"text": "", "price": 0}]},
     {"payload.lines.0.text": "must have at least 1 characters", "payload.lines.0.price": "must be above 0"}),
    ({"number": 1, "lines": [{"text": "x", "price": 1, "colour": 1}]}, {"payload.lines.0.colour": "is unknown"}),
    ({"number": 1, "lines": [{"text": "x", "price": 1}] * 3}, {"payload.lines": "must have at most 2 items"}),
    ({"number": 1, "parent": {"number": "x"}}, {"payload.parent.number": "must be integer"}),
])
def test_problems_are_named_by_field(payload, problems):
    assert payload_problems(SCHEMA, payload) == problems
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(payload) == (not problems)


@pytest.mark.parametrize("schema", [
    None, {}, {"type": 5}, {"properties": [], "required": "x", "enum": 3}, {"$ref": "#/$defs/none"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 9}}},
])
def test_a_broken_or_hostile_schema_rejects_nothing(schema):
    assert payload_problems(schema, {"number": [1, {"a": None}]}) == {}
