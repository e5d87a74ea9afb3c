"""Debug lines show single jobs; floods of warnings are counted."""

from uuid import uuid4

from support import iso, until, utc

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_debug_lines_show_each_job_with_its_ids(sidecar, host):
    sidecar.up(LOG_LEVEL="debug")
    consumer, producer = sidecar.processes
    job = str(uuid4())
    host.publish(
        "request", {"id": job, "job_type": "t", "run_at": iso(utc())}, correlation_id="order-7",
        headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"},
    )
    [event] = host.due()
    stored, emitted = consumer.logged("stored"), producer.logged("emitted")
    for line in (stored, emitted):
        assert line["level"] == "debug"
        assert (line["job_id"], line["correlation_id"], line["trace_id"]) == (job, "order-7", TRACE)
    assert emitted["event_id"] == event["event_id"]
    assert emitted["late_ms"] >= 0


def test_a_flood_of_invalid_commands_logs_a_few_lines(sidecar, host):
    for _ in range(300):
        host.publish("request", b"{")
    consumer = sidecar.up(producers=0).processes[0]  # started late, so that all commands arrive at once
    until(lambda: consumer.metric("scheduler_commands_rejected_total") == 300, "all rejected")
    consumer.logged("command rejected")
    lines = [line for line in consumer.lines if line["event"] == "command rejected"]
    assert 1 <= len(lines) <= 3
    assert lines[0]["do"]
    # There is no line per job.
    assert len(consumer.lines) < 10
