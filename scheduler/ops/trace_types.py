"""Types of traced operations, and of their exporter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Traced:
    """A command or an event that belongs to the host's trace."""

    traceparent: str
    tracestate: str | None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """A request to the API, with the caller's trace if it has one."""

    traceparent: str | None
    tracestate: str | None
    attributes: Mapping[str, Any]
    failed: str | None = None


class SpanSink(Protocol):
    """Receiver of spans. Times are nanoseconds since 1970."""

    def stored(self, began: int, ended: int, commands: Sequence[Traced]) -> None:
        """Report commands stored in one transaction."""

    def emitted(self, claimed: int, sent: int, ended: int, jobs: int, events: Sequence[Traced]) -> None:
        """Report when a batch of jobs was claimed, sent and confirmed."""

    def served(self, name: str, began: int, ended: int, request: "TracedRequest") -> None:
        """Report a request to the API."""

    def close(self) -> None:
        """Export the remaining spans, with a short timeout."""
