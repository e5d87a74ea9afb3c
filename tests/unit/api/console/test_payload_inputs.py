"""Inputs for a payload from the JSON Schema of a handler's parameters."""

import pytest

from scheduler.api.console.payload_inputs import MAX_INPUTS, payload_inputs


def inputs(properties, **more):
    return payload_inputs({"type": "object", "properties": properties} | more)


@pytest.mark.parametrize(("part", "kind"), [
    ({"type": "string"}, "text"), ({"type": "integer"}, "number"), ({"type": "number"}, "number"),
    ({"type": "boolean"}, "checkbox"), ({"type": "array"}, "json"), ({"type": "object"}, "json"), ({}, "json"),
    ({"type": "string", "enum": ["a", "b"]}, "choice"), ({"enum": [1, 2]}, "json"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "number"),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "json"), ({"$ref": "#/$defs/Channel"}, "choice"),
    ({"$ref": "#/$defs/Missing"}, "json"), ({"type": ["string", "null"]}, "json"),
])
def test_a_property_has_an_input_of_its_kind(part, kind):
    [shown] = inputs({"x": part}, **{"$defs": {"Channel": {"type": "string", "enum": ["mail"]}}})
    assert shown.kind == kind


def test_an_input_has_label_hint_default_and_whether_it_is_required():
    shown, other = inputs({"invoice": {"type": "integer", "title": "Invoice", "description": "Its number.",
                                       "default": 7}, "b": {"type": "string"}}, required=["invoice"])
    assert (shown.label, shown.hint, shown.step) == ("Invoice", "Its number. Default: 7.", "1")
    assert shown.required
    assert (other.label, other.required) == ("b", False)


@pytest.mark.parametrize("schema", [None, {}, {"properties": []}, {"properties": {"a": 1}}, {"type": "string"},
                                    {"properties": {"a": {"$ref": 5}}, "$defs": [], "required": "a"}])
def test_another_schema_has_no_inputs_or_plain_ones(schema):
    assert all(shown.kind == "json" for shown in payload_inputs(schema))


def test_the_number_of_inputs_is_bounded():
    assert len(inputs({f"p{number}": {"type": "string"} for number in range(500)})) == MAX_INPUTS
