"""Whether spans are exported. Without the extra and a collector's address nothing is imported or done."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Protocol

from scheduler.ops.logs import get_logger

log = get_logger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


@dataclass(frozen=True, slots=True)
class Traced:
    """A command or an event that belongs to a trace of the host's."""

    traceparent: str
    tracestate: str | None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the API, in the caller's own trace if it said so."""

    traceparent: str | None
    tracestate: str | None
    attributes: Mapping[str, Any]
    failed: str | None = None


class Sink(Protocol):
    """Where spans go. Times are nanoseconds since 1970."""

    def stored(self, began: int, ended: int, commands: Sequence[Traced]) -> None:
        """Tell of commands stored in one transaction."""

    def emitted(self, claimed: int, sent: int, ended: int, jobs: int, events: Sequence[Traced]) -> None:
        """Tell of a batch of jobs: when it was claimed, sent and confirmed."""

    def served(self, name: str, began: int, ended: int, request: "Request") -> None:
        """Tell of a request to the API."""

    def close(self) -> None:
        """Export what is left, for no longer than a moment."""


# None unless set up: what the processes look at before they gather anything for a span.
sink: Sink | None = None


def set_up(role: str, environment: Mapping[str, str]) -> None:
    """Export spans if the environment names an OTLP collector."""
    global sink  # noqa: PLW0603 - one process, one sink
    if not any(environment.get(name) for name in _ENDPOINTS):
        return
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        log.warning("no traces: OTEL_EXPORTER_OTLP_ENDPOINT is set but the extra is not installed",
                    do="install the wheel with its extra otel, or unset it")
        return
    from scheduler.ops.spans import Spans  # noqa: PLC0415 - imported only where it is wanted

    sink = Spans(role, environment)


def close() -> None:
    """Export what is left."""
    if sink is not None:
        sink.close()


def trace_id(traceparent: str | None) -> str | None:
    """Return the trace's id, for a log line; None for what is no W3C traceparent."""
    found = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    return found[1] if found else None
