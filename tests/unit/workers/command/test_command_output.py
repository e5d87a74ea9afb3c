"""Any output of a command becomes readable and fits into a result."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.domain.runs.result import OUTPUT_BYTES
from scheduler.workers.command.output import fit_output, printable


@pytest.mark.parametrize(("raw", "text"), [
    (b"plain\n", "plain\n"),
    ("größer €\t\r\n".encode(), "größer €\t\r\n"),
    (b"a\x00b", "a\\x00b"),
    (b"\x1b[31mred\x07", "\\x1b[31mred\\x07"),
    (b"x\xff\xfe", "x\\xff\\xfe"),
    ("\u202eevil".encode(), "\\u202eevil"),
    ("€uro".encode()[1:], "uro"),  # the tail began inside a character
    (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),  # half a surrogate pair
    (b"", ""),
])
def test_binary_and_invalid_text_is_made_printable(raw, text):
    assert printable(raw) == text


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(60, 400))
def test_the_output_fits_and_keeps_the_last_of_each(first, second, limit):
    out, err = printable(first), printable(second)
    output = fit_output({"exit_code": 0, "duration_ms": 12}, out, err, limit)
    assert len(json.dumps(output, ensure_ascii=False, separators=(",", ":")).encode()) <= limit
    assert list(output) == ["exit_code", "duration_ms", "stdout", "stderr"]
    assert out.endswith(output["stdout"])
    assert err.endswith(output["stderr"])


def test_one_stream_may_use_what_the_other_leaves():
    output = fit_output({"exit_code": 0}, "o" * 100_000, "short")
    assert output["stderr"] == "short"
    assert len(output["stdout"]) > OUTPUT_BYTES - 100
    both = fit_output({"exit_code": 0}, "o" * 100_000, "\n" * 100_000)
    assert abs(len(both["stdout"]) - 2 * len(both["stderr"])) < 100  # a newline takes two bytes
