"""Spans through OpenTelemetry; the only importer of it, loaded only when traces are wanted."""

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
from scheduler.ops.traces import Request, Traced

_CLOSE_SECONDS = 1.5
_MOST_LINKS = 128  # OpenTelemetry's own limit
_propagator = TraceContextTextMapPropagator()


class Spans:
    """store and publish belong to the host's trace; claim, one for many jobs, is linked to theirs."""

    def __init__(
        self, role: str, environment: Mapping[str, str], exporter: SpanExporter | None = None
    ) -> None:
        named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": f"scheduler-{role}"}
        resource = Resource.create(named | {"service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("scheduler", __version__)

    def stored(self, began: int, ended: int, commands: Sequence[Traced]) -> None:
        """Tell of commands stored in one transaction: one span in each command's own trace."""
        for command in commands:
            self._span("store", SpanKind.CONSUMER, (began, ended), command)

    def emitted(self, claimed: int, sent: int, ended: int, jobs: int, events: Sequence[Traced]) -> None:
        """Tell of a batch of jobs: one span for the claim, one for each event in its request's trace."""
        links = [Link(context) for event in events[:_MOST_LINKS] if (context := _context(event)).is_valid]
        claim = self._tracer.start_span(
            "claim", context=Context(), links=links, start_time=claimed, attributes={"jobs": jobs}
        )
        claim.end(sent)
        for event in events:
            self._span("publish", SpanKind.PRODUCER, (sent, ended), event, [Link(claim.get_span_context())])

    def served(self, name: str, began: int, ended: int, request: Request) -> None:
        """Tell of a request to the API: one span, in the caller's trace if it said so."""
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
        self, name: str, kind: SpanKind, time: tuple[int, int], what: Traced, links: Sequence[Link] = ()
    ) -> None:
        span = self._tracer.start_span(
            name, _propagator.extract(_carrier(what)), kind, dict(what.attributes), links, start_time=time[0]
        )
        if what.failed is not None:
            span.set_status(Status(StatusCode.ERROR, what.failed))
        span.end(time[1])

    def close(self) -> None:
        """Export what is left, for no longer than a moment."""
        # A collector that does not answer must not hold up the end of the process.
        last = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        last.start()
        last.join(_CLOSE_SECONDS)


def _carrier(what: Traced) -> dict[str, str]:
    state = {} if what.tracestate is None else {"tracestate": what.tracestate}
    return {"traceparent": what.traceparent, **state}


def _context(what: Traced) -> trace.SpanContext:
    return trace.get_current_span(_propagator.extract(_carrier(what))).get_span_context()
