"""The API's telemetry: metrics by route, a log line per request, spans; and its security headers."""

from uuid import uuid4

from api_support import BUSY, start_api
from otlp_support import Collector
from support import iso, until, utc

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def metrics(process):
    return dict(line.rsplit(" ", 1) for line in process.http("/metrics")[1].splitlines() if line[0] != "#")


def test_requests_are_counted_timed_and_logged_by_route(sidecar):
    api = start_api(sidecar)
    [process] = sidecar.processes
    job = api.job()["id"]
    for path in (f"/jobs/{job}", f"/jobs/{uuid4()}", "/jobs/x", "/nowhere/../../etc", "/jobs?colour=red"):
        api.get(path)
    api.as_("nonsense").get("/jobs")
    def counts():
        return {name.partition("{")[2]: float(value) for name, value in metrics(process).items()
                if name.startswith("scheduler_api_requests_total") and f'status="{BUSY}"' not in name}

    until(lambda: sum(counts().values()) >= 7, "each counted, which it is once it is answered")
    assert counts() == {
        'route="/api/v1/jobs",status="201"}': 1, 'route="/api/v1/jobs/{id}",status="200"}': 1,
        'route="/api/v1/jobs/{id}",status="404"}': 1, 'route="/api/v1/jobs/{id}",status="422"}': 1,
        'route="none",status="404"}': 1, 'route="/api/v1/jobs",status="422"}': 1,
        'route="/api/v1/jobs",status="403"}': 1,
    }
    assert float(metrics(process)['scheduler_api_seconds_count{route="/api/v1/jobs/{id}"}']) >= 3

    def lines():
        return [line for line in list(process.lines) if line["event"] == "request" and line["status"] != BUSY]

    until(lambda: len(lines()) == 7, "a line for each")
    shown = next(line for line in lines() if line["route"] == "/api/v1/jobs/{id}" and line["status"] == 200)
    assert (shown["method"], shown["sub"], shown["client"]) == ("GET", "admin of all", "127.0.0.1")
    assert api.token not in "".join(process.raw)


def test_bulk_cancels_are_counted_per_job(sidecar):
    api = start_api(sidecar)
    [process] = sidecar.processes
    jobs = [api.job(job_type="many")["id"] for _ in range(3)]
    assert api.ask("DELETE", f"/jobs/{jobs[0]}").status == 200
    assert process.metric("jobs_cancelled_total") == 1
    assert api.post("/jobs/cancel", job_type="many").json == {"matched": 3}  # one of them as it was already
    assert process.metric("jobs_cancelled_total") == 3
    assert api.post("/jobs/pause", job_type="many").status == 200
    assert process.metric("jobs_cancelled_total") == 3


def test_an_api_result_is_counted_like_an_amqp_result(sidecar):
    api = start_api(sidecar)
    [process] = sidecar.processes
    sidecar.start("producer").ready()
    job = api.job(run_at=iso(utc()), run={"max_attempts": 1})["id"]
    [run] = until(lambda: api.get(f"/jobs/{job}/runs").json["items"], "its run")
    for status in ("running", "failed", "failed"):
        assert api.post(f"/runs/{run['event_id']}/result", {"status": status, "attempt": 1}).status == 200
    found = metrics(process)
    assert {name: float(value) for name, value in found.items()
            if name.startswith("scheduler_run_attempts_total") and float(value)} == {
        'scheduler_run_attempts_total{outcome="failed"}': 1}
    assert float(found['scheduler_results_total{status="recorded"}']) == 2
    assert float(found['scheduler_results_total{status="unchanged"}']) == 1


def test_responses_have_security_headers(served):
    for answer in (served.get("/jobs"), served.get("/jobs/x"), served.get("/health"), served.get("/nowhere")):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["Server"] is None


def test_a_request_is_a_span_in_the_callers_trace_and_propagates_it(sidecar):
    with Collector() as collector:
        api = start_api(sidecar, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="100")
        trace = f"00-{TRACE}-{PARENT}-01"
        made = {"job_type": "test", "run_at": "2099-01-01T00:00:00Z"}
        job = api.ask("POST", "/jobs", made, headers={"traceparent": trace}).json["id"]
        name = "POST /api/v1/jobs"
        span = until(lambda: next((span for span in collector.spans if span.name == name), None), "its span")
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert sidecar.job(job)["traceparent"].split("-")[1] == TRACE
        sidecar.close()
