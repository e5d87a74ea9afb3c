"""Spans reach an OTLP collector, in the request's own trace; without the address nothing is imported."""

from uuid import uuid4

import pytest
from otlp_support import Collector
from support import iso, until, utc

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def collector():
    """An OTLP endpoint: its URL and the spans that came, by service."""
    with Collector() as made:
        yield made.url, made.by_service


def attributes(span):
    return {attribute.key: attribute.value.string_value for attribute in span.attributes}


def test_store_claim_and_publish_are_spans_of_the_requests_trace(sidecar, host, collector):
    url, spans = collector
    sidecar.up(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_BSP_SCHEDULE_DELAY="100")
    job = str(uuid4())
    request = {"id": job, "job_type": "t", "run_at": iso(utc())}
    trace = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
    host.publish("request", request, headers=trace, correlation_id="c-1")
    host.request(run_at=iso(utc()))  # of no trace, and so in no span
    _, properties, _ = host.get("mainapp_due")
    _, others, _ = host.get("mainapp_due")
    handed_on = [each.headers for each in (properties, others) if each.headers]
    assert handed_on == [trace]
    until(lambda: {span.name for _, span in spans} == {"store", "claim", "publish"}, "the three spans")
    sidecar.close()
    found = {span.name: (service, span) for service, span in spans}
    assert len(spans) == 3
    for name, service in (("store", "scheduler-consumer"), ("publish", "scheduler-producer")):
        assert found[name][0] == service
        span = found[name][1]
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert span.trace_state == "vendor=1"
        assert attributes(span)["job_id"] == job
        assert attributes(span)["correlation_id"] == "c-1"
        assert span.start_time_unix_nano < span.end_time_unix_nano
    claim, publish = found["claim"][1], found["publish"][1]
    assert claim.trace_id.hex() != TRACE
    assert [link.trace_id.hex() for link in claim.links] == [TRACE]
    assert [link.span_id for link in publish.links] == [claim.span_id]


def test_a_trace_that_was_not_sampled_stays_unsampled(sidecar, host, collector):
    url, spans = collector
    sidecar.up(OTEL_EXPORTER_OTLP_ENDPOINT=url)
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    host.publish("request", {"id": str(uuid4()), "job_type": "t", "run_at": iso(utc())}, headers=headers)
    assert host.get("mainapp_due")[1].headers == headers
    sidecar.close()
    assert [span.name for _, span in spans] in ([], ["claim"])


def test_an_unavailable_collector_changes_nothing(sidecar, host):
    sidecar.up(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    host.publish("request", {"id": str(uuid4()), "job_type": "t", "run_at": iso(utc())}, headers=headers)
    assert host.due()
    # The fixture ensures that both end in time and with exit code 0.
