import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.domain.errors import Rejected
from scheduler.domain.strict_json import parse_object

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), inner
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), values),
       st.booleans(), st.sampled_from([None, 1, "\t"]))
@settings(deadline=None, derandomize=True)
def test_agrees_with_the_standard_parser_and_keeps_each_members_text(document, ascii_only, indent):
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    members, sources = parse_object(text.encode())
    assert members == document
    assert {key: json.loads(source) for key, source in sources.items()} == document
    assert all(source in text for source in sources.values())


def test_a_number_keeps_its_spelling():
    _, sources = parse_object(b'{"payload": {"price": 1.10, "big": 1e400, "n": 12345678901234567890.5}}')
    assert sources["payload"] == '{"price": 1.10, "big": 1e400, "n": 12345678901234567890.5}'


@pytest.mark.parametrize(("body", "words"), [
    (b"", "is empty"),
    (b"  \n", "is empty"),
    (b"[1]", "must be a JSON object"),
    (b"hello", "must be a JSON object"),
    (b"\xff\xfe", "is not UTF-8"),
    (b'{"a": 1,}', "expected a key"),
    (b'{"a": 1', "expected ','"),
    (b'{"a" 1}', "expected ':'"),
    (b'{"a": }', "no value at character 6"),
    (b'{"a": 1} x', "text after the object's end"),
    (b'{"a": 1, "a": 2}', "the key 'a' twice"),
    (b'{"p": {"x": 1, "x": 2}}', "the key 'x' twice"),
    (b'{"a": NaN}', "holds NaN"),
    (b'{"a": {"b": -Infinity}}', "holds -Infinity"),
    (b'{"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested too deeply"),
    (b'{"a": ' + b"9" * 5000 + b"}", "too many digits"),
    (b'{"a": "\n"}', "is not JSON"),
])
def test_says_what_is_wrong_with_the_body(body, words):
    with pytest.raises(Rejected) as caught:
        parse_object(body)
    assert [problem.field for problem in caught.value.problems] == ["body"]
    assert words in caught.value.problems[0].problem


@pytest.mark.parametrize(("body", "field"), [
    (b'{"job_type": "a\\u0000b"}', "job_type"),
    (b'{"payload": {"x": ["ok", "\\ud800"]}}', "payload.x.1"),
    (b'{"payload": {"\\udfff": 1}}', "payload.\\udfff"),
])
def test_names_the_string_that_postgres_cannot_store(body, field):
    with pytest.raises(Rejected) as caught:
        parse_object(body)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_an_escaped_backslash_is_not_a_nul_and_a_surrogate_pair_is_a_character():
    members, _ = parse_object(b'{"a": "\\\\u0000", "b": "\\ud83d\\ude00"}')
    assert members == {"a": "\\u0000", "b": "\U0001f600"}
