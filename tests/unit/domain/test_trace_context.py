"""Only a valid and bounded W3C trace context is stored with a command."""

import pytest

from scheduler.domain.trace_context import trace_context
from scheduler.emitting.run_messages import trace_headers

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("parent", [PARENT, f"01{PARENT[2:]}", f"01{PARENT[2:]}-more"])
def test_a_valid_traceparent_is_kept(parent):
    assert trace_context(parent, "vendor=1") == (parent, "vendor=1")


@pytest.mark.parametrize("parent", [
    None, b"00", 7, "", "00-1-2-01", PARENT.upper(), PARENT + "-more", PARENT + "\n", f"ff{PARENT[2:]}",
    f"00-{'0' * 32}-b7ad6b7169203331-01", f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
    "00-" + "a" * 130_980, f"01{PARENT[2:]}-{'x' * 300}",
])
def test_an_invalid_traceparent_is_dropped_with_its_tracestate(parent):
    assert trace_context(parent, "vendor=1") == (None, None)


@pytest.mark.parametrize("state", [None, 7, "", "x" * 513, "vendor=\x00", "vendor=ö"])
def test_an_invalid_tracestate_is_dropped_alone(state):
    assert trace_context(PARENT, state) == (PARENT, None)


def test_what_an_earlier_release_stored_is_left_out_of_the_event_if_it_is_oversized():
    assert trace_headers("00-1-2-01", "vendor=1") == {"traceparent": "00-1-2-01", "tracestate": "vendor=1"}
    assert trace_headers("x" * 130_980, "x" * 130_980) == {}
    assert trace_headers(None, None) is None
