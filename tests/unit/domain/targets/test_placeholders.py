"""Placeholders are filled in once, as text, and a missing one is named."""

import pytest

from scheduler.domain.targets.placeholders import UnknownPlaceholder, fill, fill_all

EVENT = {
    "job_id": "J", "job_type": "T", "due_at": "2026-12-01T08:00:00.000000Z", "event_id": "E",
    "run": {"attempt": 2},
    "payload": {"a": {"b": "deep"}, "n": 1.5, "yes": True, "none": None, "list": [1, {"x": "y"}],
                "nested": "{{job_id}}", "quoted": "a \"b\" 'c'\n$(rm -rf /)", "job_id": "not this one"},
}


@pytest.mark.parametrize(("text", "filled"), [
    ("plain", "plain"),
    ("{{job_id}}-{{job_type}}-{{event_id}}-{{attempt}}", "J-T-E-2"),
    ("--day={{due_at}}", "--day=2026-12-01T08:00:00.000000Z"),
    ("{{payload.a.b}}", "deep"),
    ("{{payload.n}} {{payload.yes}} {{payload.none}}", "1.5 true null"),
    ("{{payload.list}}", '[1,{"x":"y"}]'),
    ("{{payload.list.1.x}}", "y"),
    ("{{payload.nested}}", "{{job_id}}"),
    ("{{{{payload.nested}}}}", "{{{{job_id}}}}"),
    ("{{payload.quoted}}", "a \"b\" 'c'\n$(rm -rf /)"),
    ("{{payload.job_id}}", "not this one"),
    ("{ {job_id} } {{ {job_id}", "{ {job_id} } {{ {job_id}"),
])
def test_filled_once_and_as_text(text, filled):
    assert fill(text, EVENT) == filled


@pytest.mark.parametrize("name", [
    "payload.missing", "payload.a.b.c", "payload.list.2", "payload.list.-1", "payload", "payload.", "nobody", "",
    "run.attempt", "secret.X", "payload.n.real", " job_id ",
])
def test_what_is_not_there_is_named(name):
    with pytest.raises(UnknownPlaceholder) as error:
        fill(f"x {{{{{name}}}}} y", EVENT)
    assert f"{{{{{name}}}}}" in str(error.value)


def test_all_strings_of_a_value_are_filled_but_no_key():
    assert fill_all({"{{job_id}}": ["{{job_type}}", 7, None, {"k": "{{attempt}}"}]}, EVENT) == {
        "{{job_id}}": ["T", 7, None, {"k": "2"}],
    }
