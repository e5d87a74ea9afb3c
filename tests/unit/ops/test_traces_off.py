"""Traces cost nothing if they are disabled."""

import subprocess
import sys

import pytest

from scheduler.ops import traces

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_nothing_is_imported_without_an_address():
    code = (
        "import sys; from scheduler import cli; from scheduler.ops import traces; "
        "from scheduler.processes import consumer, producer; "
        "traces.set_up('consumer', {}); assert traces.sink is None; traces.close(); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_address_without_the_extra_is_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(traces, "find_spec", lambda _: None)
    traces.set_up("consumer", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector"})
    assert traces.sink is None
    assert "extra otel" in caplog.records[0].fields["do"]


@pytest.mark.parametrize(("text", "found"), [
    (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
    (None, None),
    ("", None),
    ("nonsense", None),
    (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", None),
    (f"00-{TRACE}\n-00f067aa0ba902b7-01", None),
])
def test_the_id_of_a_trace(text, found):
    assert traces.trace_id(text) == found
