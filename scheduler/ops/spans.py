"""Export spans through OpenTelemetry; imported only if traces are enabled."""

import threading
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from scheduler import __version__
from scheduler.ops.trace_types import Traced, TracedRequest

_CLOSE_SECONDS = 1.5
_MAX_LINKS = 128  # OpenTelemetry's own limit
_propagator = TraceContextTextMapPropagator()


class Spans:
    """Spans `store` and `publish` in the host's trace, and `claim`, which is linked to the traces of its jobs."""

    def __init__(
        self, role: str, environment: Mapping[str, str], exporter: SpanExporter | None = None
    ) -> None:
        named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": f"scheduler-{role}"}
        resource = Resource.create(named | {"service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("scheduler", __version__)

    def stored(self, began: int, ended: int, commands: Sequence[Traced]) -> None:
        """Export one span per stored command, in the command's trace."""
        for command in commands:
            self._span("store", SpanKind.CONSUMER, (began, ended), command)

    def emitted(self, claimed: int, sent: int, ended: int, jobs: int, events: Sequence[Traced]) -> None:
        """Export one span for a claim, and one per event in the trace of its request."""
        links = [Link(context) for event in events[:_MAX_LINKS] if (context := _context(event)).is_valid]
        claim = self._tracer.start_span(
            "claim", context=Context(), links=links, start_time=claimed, attributes={"jobs": jobs}
        )
        claim.end(sent)
        for event in events:
            self._span("publish", SpanKind.PRODUCER, (sent, ended), event, [Link(claim.get_span_context())])

    def served(self, name: str, began: int, ended: int, request: TracedRequest) -> None:
        """Export one span for an API request, in the caller's trace if it has one."""
        if request.traceparent is not None:
            traced = Traced(request.traceparent, request.tracestate, request.attributes, request.failed)
            self._span(name, SpanKind.SERVER, (began, ended), traced)
            return
        span = self._tracer.start_span(
            name, Context(), SpanKind.SERVER, dict(request.attributes), start_time=began
        )
        if request.failed is not None:
            span.set_status(Status(StatusCode.ERROR, request.failed))
        span.end(ended)

    def _span(
        self, name: str, kind: SpanKind, time: tuple[int, int], item: Traced, links: Sequence[Link] = ()
    ) -> None:
        span = self._tracer.start_span(
            name, _propagator.extract(_carrier(item)), kind, dict(item.attributes), links, start_time=time[0]
        )
        if item.failed is not None:
            span.set_status(Status(StatusCode.ERROR, item.failed))
        span.end(time[1])

    def close(self) -> None:
        """Export the remaining spans, with a short timeout."""
        # A collector that does not respond must not delay the exit.
        last = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        last.start()
        last.join(_CLOSE_SECONDS)


def _carrier(item: Traced) -> dict[str, str]:
    state = {} if item.tracestate is None else {"tracestate": item.tracestate}
    return {"traceparent": item.traceparent, **state}


def _context(item: Traced) -> trace.SpanContext:
    return trace.get_current_span(_propagator.extract(_carrier(item))).get_span_context()
