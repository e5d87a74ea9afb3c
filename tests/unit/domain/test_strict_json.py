import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.domain.errors import Rejected, Unparsed
from scheduler.domain.strict_json import MAX_DEPTH, _members, _object, _parse_flat, _Unacceptable, parse_object
from tests.call_count import CallCount

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
    assert parse_object(text.encode(), "payload")[0] == document
    for key in document:
        members, source = parse_object(text.encode(), key)
        assert members | {key: document[key]} == document
        assert isinstance(members[key], dict) == isinstance(document[key], dict)
        assert source in text
        assert json.loads(source) == document[key]


@pytest.mark.parametrize(("text", "source"), [
    ('{"payload": {"a": 1}}', '{"a": 1}'),
    ('{ "id": 1,\n "payload"\t:\r [1.0 , 2] , "z": {"payload": 3}}', "[1.0 , 2]"),
    ('{"z": {"payload": 3}, "payload": 1.10}', "1.10"),
    ('{"z": "payload", "payload": null}', "null"),
    ('{"p\\u0061yload": 7.0}', "7.0"),
    ('{"p\\u0061yload": 7.0, "z": {"payload": 3}}', "7.0"),
    ('{"z \\"payload": 3, "p\\u0061yload": null}', "null"),
    ('{"z \\"payload": 3}', None),
    ('{"z": {"payload": 3}}', None),
    ('{"z": "{", "payload": "\\"payload\\": 2"}', '"\\"payload\\": 2"'),
])
def test_finds_the_outermost_members_text_however_it_is_written(text, source):
    members, found = parse_object(text.encode(), "payload")
    assert found == source
    assert members == json.loads(text)


def test_a_number_keeps_its_spelling():
    _, source = parse_object(b'{"payload": {"price": 1.10, "big": 1e400, "n": 12345678901234567890.5}}', "payload")
    assert source == '{"price": 1.10, "big": 1e400, "n": 12345678901234567890.5}'


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
    (b'{"payload": {}, "payload": {}}', "the key 'payload' twice"),
    (b'{"payload": {}, "p\\u0061yload": {}}', "the key 'payload' twice"),
    (b'{"payload": {"x": 1, "x": 2}}', "the key 'x' twice"),
    (b'{"payload": {}} x', "text after the object's end"),
    (b'{"payload": NaN}', "holds NaN"),
    (b'{"payload": }', "no value at character 12"),
    (b'{"payload": {}, "a": -Infinity}', "holds -Infinity"),
])
def test_says_what_is_wrong_with_the_body(body, words):
    with pytest.raises(Rejected) as caught:
        parse_object(body, "payload")
    assert [problem.field for problem in caught.value.problems] == ["body"]
    assert words in caught.value.problems[0].problem


@pytest.mark.parametrize(("body", "field"), [
    (b'{"job_type": "a\\u0000b"}', "job_type"),
    (b'{"payload": {"x": ["ok", "\\ud800"]}}', "payload.x.1"),
    (b'{"payload": {"\\udfff": 1}}', "payload.\\udfff"),
])
def test_names_the_string_that_postgres_cannot_store(body, field):
    with pytest.raises(Rejected) as caught:
        parse_object(body, "payload")
    assert [problem.field for problem in caught.value.problems] == [field]


LARGE = {
    "objects": '{"a":1},', "pairs": '{"a":1,"b":2},', "empty objects": "{},", "arrays": "[],", "numbers": "1,",
    "emoji": '"\\ud83d\\ude00",', "nested emoji": '[[{"a":"\\ud83d\\ude00"}]],',
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_payload_is_checked_without_a_call_for_each_of_its_elements(name):
    source = f'{{"x": [{LARGE[name] * 10_000}1]}}'
    body = f'{{"id": {{}}, "payload": {source}, "other": [{LARGE[name]}2]}}'.encode()
    with CallCount() as calls:
        members, text = parse_object(body, "payload")
    assert calls.count < 200
    assert text == source
    assert members == {"id": {}, "payload": {}, "other": json.loads(f"[{LARGE[name]}2]")}


@pytest.mark.parametrize(("value", "count"), [("[]", 20_001), ("{}", 30_000), ("[[[]]]", 20_000)])
def test_a_body_of_hardly_anything_but_brackets_is_rejected_before_it_is_parsed(value, count):
    def body(of, name="payload"):
        return f'{{"id": "x", "{name}": {{"x": [{",".join([of] * count)}]}}}}'.encode()

    with pytest.raises(Unparsed) as caught:
        parse_object(body(value), "payload")
    assert "arrays and objects, the maximum for its size" in caught.value.problems[0].problem
    # In strings they do not count.
    members, source = parse_object(body(json.dumps(value + '"\\')), "payload")
    assert (members["id"], len(json.loads(source)["x"])) == ("x", count)
    # Other characters make room for them.
    assert parse_object(body(f'{{"of twenty characters": {value}}}'), "payload")[0]["payload"] == {}


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_the_depth_is_limited_regardless_of_the_version_of_python(opening, closing):
    def body(depth):
        return f'{{"payload": {opening * depth}1{closing * depth}, "text": "{"[" * 2000}"}}'.encode()

    assert parse_object(body(500), "payload")[0]["text"] == "[" * 2000
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # as with newer versions, whose parser goes deeper
    try:
        with pytest.raises(Rejected, match="nested too deeply"):
            parse_object(body(MAX_DEPTH), "payload")
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(("member", "words"), [
    ('{"a":1,"b":2,"a":3}', "the key 'a' twice"), ('{"c":[{"d":{"e":1,"e":1}}]}', "the key 'e' twice"),
    ("[NaN]", "holds NaN"), ("[}]", "no value"), ("[" * 10_000, "nested too deeply"),
    ("9" * 5000, "too many digits"),
])
@pytest.mark.parametrize("key", ["payload", "other"])
def test_says_what_is_wrong_with_a_large_body(key, member, words):
    body = f'{{"x": ["{"x" * 5000}", {{}}, {{}}, {{}}], "{key}": {member}}}'
    with pytest.raises(Rejected, match=words):
        parse_object(body.encode(), "payload")


@pytest.mark.parametrize(("text", "bad"), [
    ("\\u0000", True), ("\\\\u0000", False), ("\\\\\\u0000", True), ("\\ud83d", True), ("\\ude00", True),
    ("\\ud83d\\ude00", False), ("\\ude00\\ud83d", True), ("\\\\ud83d\\ude00", True), ("\\ud83d\\\\ude00", True),
    ("\\ud83d\\ude00\\ude00", True), ("\\ud83d\\ud83d\\ude00", True), ("\\uD83D\\uDE00", False),
])
def test_tells_escapes_that_postgres_cannot_store_from_others(text, bad):
    body = f'{{"payload": {{"a": ["{text}"]}}}}'.encode()
    if bad:
        with pytest.raises(Rejected) as caught:
            parse_object(body, "payload")
        assert caught.value.problems[0].field == "payload.a.0"
    else:
        assert parse_object(body, "payload")[0] == json.loads(body)


def test_an_escaped_backslash_is_not_a_nul_and_a_surrogate_pair_is_a_character():
    members, _ = parse_object(b'{"a": "\\\\u0000", "b": "\\ud83d\\ude00"}', "payload")
    assert members == {"a": "\\u0000", "b": "\U0001f600"}


pieces = st.sampled_from([
    "{", "}", "[", "]", ":", ",", " ", "\n", '"', "\\", '"a"', '"b"', '"payload"', '"payload": {', '"x": 1',
    '"x": "}"', '"{"', "1", "null", "NaN", '"a": "b"', '"a" : 2', '"\\u0061"',
])


@given(st.lists(pieces, max_size=14).map(lambda parts: "{" + "".join(parts) + "}"))
@settings(deadline=None, derandomize=True, max_examples=2000)
def test_the_short_way_takes_only_what_the_long_way_takes_and_reads_it_alike(text):
    try:
        quick = _parse_flat(text, "payload")
    except _Unacceptable:
        with pytest.raises(Rejected):
            parse_object(text.encode(), "payload")
    else:
        assert quick is None or quick == _members(text, "payload")


@given(st.dictionaries(st.sampled_from(["id", "a", "b"]), st.text("xy :,{}\"'") | st.integers()),
       st.dictionaries(st.sampled_from(["p", "q"]), st.text("xy :,{}") | st.none()), st.integers(0, 3))
@settings(deadline=None, derandomize=True, max_examples=500)
def test_no_key_given_twice_slips_through_the_short_way(rest, payload, again):
    text = json.dumps(rest | {"payload": payload})
    repeated = text[:-1] + "".join(f', "{key}": 1' for key in list(rest)[:again]) + "}"
    if repeated != text:
        with pytest.raises(Rejected, match="twice"):
            parse_object(repeated.encode(), "payload")
    else:
        assert _parse_flat(text, "payload") in (None, _members(text, "payload"))


def test_a_key_given_twice_among_very_many_is_found_without_looking_through_them_again_and_again():
    looks = 0

    class Key(str):
        """Counts accesses: hashing for a table, or comparison with another key."""

        __slots__ = ()

        def __hash__(self):
            nonlocal looks
            looks += 1
            return super().__hash__()

        def __eq__(self, other):
            nonlocal looks
            looks += 1
            return super().__eq__(other)

    many = 5000
    pairs = [(Key(f"k{number}"), 1) for number in [*range(many), many - 1]]
    with pytest.raises(_Unacceptable, match="'k4999' twice"):
        _object(pairs)
    # Looked for pair by pair it would be thousands for each.
    assert many <= looks < 10 * many
