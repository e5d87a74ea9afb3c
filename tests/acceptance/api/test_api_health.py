"""GET /health/detailed: live processes, backlog, and the overall status."""

import json
from dataclasses import replace
from uuid import uuid4

from api_support import start_api
from support import iso, until, utc

KEYS = {"status", "version", "servers", "processes", "oldest_due_seconds", "results_backlog"}


def watch(sidecar):
    """Start the API, and return a function that reads its health as it is."""
    api = replace(start_api(sidecar), patient=False)

    def health():
        answer = api.get("/health/detailed")
        assert (answer.status == 200) == (answer.json["status"] == "ok"), answer.body
        assert set(answer.json) == KEYS
        return answer.json

    return health


def is_ok(health):
    return lambda: health()["status"] == "ok"


def test_a_killed_producer_degrades_the_sidecar_until_another_starts(sidecar):
    health = watch(sidecar)
    assert health()["status"] == "degraded"  # no consumer and no producer yet
    sidecar.up()
    until(is_ok(health), "both to be alive")
    state = health()
    assert state["processes"] == {"consumer": 1, "producer": 1, "worker": 0, "api": 1}
    assert (state["oldest_due_seconds"], state["results_backlog"]) == (0, 0)
    assert state["servers"]["postgres"] == state["servers"]["rabbitmq"] == {"status": "ok", "problem": None}
    sidecar.processes[-1].kill()
    state = until(lambda: (found := health())["status"] == "degraded" and found, "its silence", within=60)
    assert (state["processes"]["producer"], state["processes"]["consumer"]) == (0, 1)
    sidecar.start("producer").ready()
    until(is_ok(health), "another producer")


def test_an_overdue_job_degrades_the_sidecar(sidecar, host):
    sidecar.up()
    health = watch(sidecar)
    until(is_ok(health), "both to be alive")
    job = host.request(run_at=iso(utc(minutes=-5)), route="nowhere")  # which is bound to no queue
    state = until(lambda: (found := health())["status"] == "degraded" and found, "the late job")
    assert 300 <= state["oldest_due_seconds"] < 3600
    host.publish("cancel", {"id": job})
    until(is_ok(health), "the job to be cancelled")


def test_too_many_unread_results_degrade_the_sidecar(sidecar, host):
    health = watch(sidecar)
    for number in range(1, 10_002):
        body = json.dumps({"event_id": str(uuid4()), "attempt": 1, "status": "running"}).encode()
        host.channel.basic_publish("schedule.commands", "result", body)
        if number == 3:
            until(lambda: health()["results_backlog"] == 3, "three results")
    until(lambda: health()["results_backlog"] == 10_001, "all results")
    assert health()["status"] == "degraded"
