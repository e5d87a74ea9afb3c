"""Set up the export of spans, if the extra is installed and a collector is configured."""

import re
from collections.abc import Mapping
from importlib.util import find_spec

from scheduler.ops.logs import get_logger
from scheduler.ops.trace_types import SpanSink

log = get_logger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


# None unless set up: processes check it before they collect data for a span.
sink: SpanSink | None = None


def set_up(role: str, environment: Mapping[str, str]) -> None:
    """Export spans if the environment names an OTLP collector."""
    global sink  # noqa: PLW0603 - one process, one sink
    if not any(environment.get(name) for name in _ENDPOINTS):
        return
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        log.warning("no traces: OTEL_EXPORTER_OTLP_ENDPOINT is set but the extra is not installed",
                    do="install the wheel with its extra otel, or unset it")
        return
    from scheduler.ops.spans import Spans  # noqa: PLC0415 - imported only if traces are enabled

    sink = Spans(role, environment)


def close() -> None:
    """Export the remaining spans."""
    if sink is not None:
        sink.close()


def trace_id(traceparent: str | None) -> str | None:
    """Return the trace id of a W3C traceparent for a log line, or None if it is malformed."""
    match = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    return match[1] if match else None
